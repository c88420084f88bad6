"""Images with labels of ours: refused, and a restarted agent is not led astray by what runs of them already."""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Callable, Iterator

import docker
import pytest

from appliance.agent.labels import LABEL_ID, LABEL_NETWORK, LABEL_SESSION, LABEL_USER
from common.protocol import ContainerSpec, ContainerStatus, ImageState, ImageStatus
from tests.integration.agent.calls import launch, states
from tests.integration.agent.conftest import BUSYBOX, Agent
from tests.integration.own_engine import remove_containers

Make = Callable[..., ContainerSpec]
FORGED = {LABEL_ID: "forged", LABEL_NETWORK: "x"}


@pytest.fixture
def forged_image(engine: docker.DockerClient, run_id: str) -> Iterator[str]:
    """An image as anybody may build it."""
    reference = f"penstock-test/forged:{uuid.uuid4().hex[:12]}"
    repository, tag = reference.split(":")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(BUSYBOX, "bin/sleep")
    changes = [f"LABEL {label}={value}" for label, value in FORGED.items()]
    engine.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag, changes=changes)
    yield reference
    remove_containers(engine, ancestor=reference)
    engine.images.remove(reference, force=True)


def test_it_is_refused_with_the_reason(agent: Agent, spec: Make, forged_image: str) -> None:
    with agent.client() as client:
        state = launch(client, spec(image=forged_image))
        asked = client.put("/v1/images", json={"reference": forged_image})
    assert state.status is ContainerStatus.FAILED
    told = ImageState.model_validate_json(asked.content)
    assert told.status is ImageStatus.FAILED
    for error in (state.error, told.error):
        assert f"{forged_image} has labels that Penstock alone may write: {LABEL_ID}, {LABEL_NETWORK}" in error


def test_what_runs_of_it_keeps_no_restarted_agent_from_coming_up(
    agent: Agent, spec: Make, forged_image: str, engine: docker.DockerClient, run_id: str
) -> None:
    """One as an older agent made it, whose session is known, and one that somebody has started by hand."""
    with agent.client() as client:
        whole = launch(client, spec())
    agent.stop()
    ours = {LABEL_ID: f"{whole.id}-b", LABEL_SESSION: "s2", LABEL_USER: run_id}
    for name, labels in ((f"penstock-{whole.id}-b", ours), (None, {})):
        engine.containers.run(forged_image, ["/bin/sleep", "600"], name=name, labels=labels, detach=True)
    agent.start()
    with agent.client() as client:
        found = states(client)
        assert found.keys() == {whole.id, f"{whole.id}-b"}
        assert found[whole.id] == whole
        odd = found[f"{whole.id}-b"]
        assert (odd.session_id, odd.status) == ("s2", ContainerStatus.RUNNING)
        assert odd.warning == f"its label {LABEL_NETWORK} cannot be read"
        client.delete(f"/v1/containers/{odd.id}", params={"grace_s": 0}).raise_for_status()
        assert states(client).keys() == {whole.id}
    [by_hand] = engine.containers.list(filters={"ancestor": forged_image})
    assert by_hand.labels[LABEL_ID] == "forged", "what is not ours is left alone"
