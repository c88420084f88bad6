"""Many containers that take their time to stop, and who has to wait for them: nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import docker

from common.protocol import ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, wait_for
from tests.integration.agent.conftest import Agent

Make = Callable[..., ContainerSpec]
DEAF = ["trap '' TERM; echo ready; while true; do sleep 1; done"]
MANY = 45
"""More than the threads that a program has for calls which block, unless it sets some apart."""


def test_other_containers_start_tell_their_logs_and_stop_meanwhile(
    agent: Agent, spec: Make, engine: docker.DockerClient
) -> None:
    deaf = [spec(command=["sh", "-c"], args=DEAF) for _ in range(MANY)]
    with agent.client() as client, ThreadPoolExecutor(MANY) as threads:
        client.timeout = 300
        list(threads.map(lambda wanted: launch(client, wanted), deaf))
        stops = [threads.submit(client.delete, f"/v1/containers/{each.id}?grace_s=600") for each in deaf]
        time.sleep(2)
        with agent.client() as other:
            quick = launch(other, spec(command=["echo", "hello"], args=[]))
            wait_for(other, quick.id, ContainerStatus.EXITED)
            assert other.get(f"/v1/containers/{quick.id}/logs").text == "hello\n"
            other.delete(f"/v1/containers/{quick.id}?grace_s=0").raise_for_status()
        assert not any(stop.done() for stop in stops), "they are still at it"
        for each in deaf:
            engine.containers.get(f"penstock-{each.id}").kill()
        assert {stop.result().status_code for stop in stops} == {204}
