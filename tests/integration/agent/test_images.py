"""Images: pulled on request, or on no account, against a real registry."""

from __future__ import annotations

import time
from collections.abc import Callable

import docker
import httpx

from common.protocol import ContainerSpec, ContainerStatus, ImageState, ImageStatus
from tests.integration.agent.calls import launch, wait_for
from tests.integration.agent.conftest import Agent

Make = Callable[..., ContainerSpec]
NOWHERE = "127.0.0.1:1/no/such:image"


def ask(client: httpx.Client, reference: str) -> ImageState:
    answer = client.put("/v1/images", json={"reference": reference})
    assert answer.status_code == 200, answer.text
    return ImageState.model_validate_json(answer.content)


def wait_while_pulling(client: httpx.Client, reference: str) -> ImageState:
    deadline = time.monotonic() + 60
    while (state := ask(client, reference)).status is ImageStatus.PULLING:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state


def test_an_image_that_is_there_is_ready_with_its_size(agent: Agent, image: str, engine: docker.DockerClient) -> None:
    with agent.client() as client:
        state = ask(client, image)
    known = engine.images.get(image)
    assert (state.status, state.digest, state.size) == (ImageStatus.READY, known.id, known.attrs["Size"])


def test_an_image_that_cannot_be_pulled_says_why_and_is_tried_again(agent: Agent) -> None:
    with agent.client() as client:
        for _ in range(2):
            assert ask(client, NOWHERE).status is ImageStatus.PULLING
            failed = wait_while_pulling(client, NOWHERE)
            assert failed.status is ImageStatus.FAILED
            assert f"image {NOWHERE} cannot be pulled: its registry does not deliver it" in failed.error
            assert "refused" not in failed.error
    assert "connection refused" in agent.log.read_text()


def test_an_image_that_must_not_be_pulled_is_not(agent: Agent, spec: Make) -> None:
    wanted = spec(image=NOWHERE, pull="never")
    with agent.client() as client:
        state = launch(client, wanted)
        assert state.status is ContainerStatus.FAILED, "at once: nothing is pulled"
        assert f"image {NOWHERE} is not on this node, and it was asked not to pull it" in state.error


def test_an_image_that_is_there_runs_without_a_pull(agent: Agent, spec: Make) -> None:
    wanted = spec(pull="never")
    with agent.client() as client:
        launch(client, wanted)
        wait_for(client, wanted.id, ContainerStatus.RUNNING)


def test_a_reference_that_is_none_is_refused(agent: Agent) -> None:
    with agent.client() as client:
        answer = client.put("/v1/images", json={"reference": ""})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/reference"
