"""One careless session ends nobody else's: memory, shared memory and the disk of its node."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import httpx
import pytest

from common.protocol import ContainerSpec, ContainerState, ContainerStatus
from tests.integration.agent.calls import launch, log_of, states, wait_for
from tests.integration.agent.conftest import Agent

Make = Callable[..., ContainerSpec]
END_S = 60
OVER = re.compile("disk over the limit: [0-9]+ MiB are written beside its volumes, and 50 MiB are given")


def final(client: httpx.Client, wanted: ContainerSpec, status: ContainerStatus) -> ContainerState:
    return wait_for(client, wanted.id, status, END_S)


def eats(mib: int) -> list[str]:
    """Return a program that has so many MiB of memory at once."""
    # Docker begins to watch the memory of a container when it runs already
    return ["sh", "-c", f"sleep 2; exec busybox dd if=/dev/zero of=/dev/null bs={mib}M count=1"]


def fills(file: str, mib: int) -> str:
    return f"busybox dd if=/dev/zero of={file} bs=1M count={mib}"


def test_a_session_that_eats_memory_ends_and_its_neighbour_lives(agent: Agent, spec: Make) -> None:
    careless, neighbour = spec(memory_mib=64, command=eats(256), args=[]), spec(memory_mib=64)
    with agent.client() as client:
        launch(client, neighbour)
        launch(client, careless)
        ended = final(client, careless, ContainerStatus.EXITED)
        assert ended.exit_code == 137
        assert "memory" in ended.error, "also where the engine does not say so"
        assert states(client)[neighbour.id].status is ContainerStatus.RUNNING


def test_shared_memory_counts_as_memory(agent: Agent, spec: Make) -> None:
    wanted = spec(memory_mib=64, shm_mib=256, command=["sh", "-c"], args=[f"sleep 2; exec {fills('/dev/shm/x', 200)}"])
    with agent.client() as client:
        launch(client, wanted)
        ended = final(client, wanted, ContainerStatus.EXITED)
    assert ended.exit_code == 137
    assert "memory" in ended.error


def test_the_kernel_ends_sessions_before_it_ends_what_the_node_runs(
    agent: Agent, spec: Make, engine: docker.DockerClient
) -> None:
    wanted, script = spec(), ["cat", "/proc/self/oom_score_adj"]
    own = spec(command=script, args=[])
    with agent.client() as client:
        launch(client, wanted)
        launch(client, own)
        assert int(log_of(client, own.id)) == 500
    executed = engine.containers.get(f"penstock-{wanted.id}").exec_run(script)
    assert executed.output == b"500\n"


def test_a_session_that_fills_the_disk_ends_and_its_neighbour_lives(agent: Agent, spec: Make) -> None:
    careless = spec(disk_mib=50, command=["sh", "-c"], args=[f"{fills('/x', 200)}; sleep 600"])
    neighbour = spec(disk_mib=50, command=["sh", "-c"], args=[f"{fills('/x', 20)}; sleep 600"])
    with agent.client() as client:
        launch(client, neighbour)
        launch(client, careless)
        ended = final(client, careless, ContainerStatus.FAILED)
        assert OVER.fullmatch(ended.error)
        assert states(client)[neighbour.id].status is ContainerStatus.RUNNING


def test_what_is_deleted_and_still_open_counts(agent: Agent, spec: Make) -> None:
    hides = f"exec 3<>/x; {fills('/proc/self/fd/3', 100)}; busybox rm /x; sleep 600"
    wanted = spec(disk_mib=50, command=["sh", "-c"], args=[hides])
    with agent.client() as client:
        launch(client, wanted)
        assert OVER.fullmatch(final(client, wanted, ContainerStatus.FAILED).error)


def test_the_limit_is_known_again_after_a_restart_of_the_agent(agent: Agent, spec: Make) -> None:
    wanted = spec(disk_mib=50, command=["sh", "-c"], args=[f"sleep 3; {fills('/x', 100)}; sleep 600"])
    with agent.client() as client:
        launch(client, wanted)
    agent.stop()
    agent.start()
    with agent.client() as client:
        assert "disk over the limit" in final(client, wanted, ContainerStatus.FAILED).error


def test_what_a_session_mounts_does_not_count(agent: Agent, spec: Make, engine: docker.DockerClient) -> None:
    folder = Path(agent.environment["PENSTOCK_AGENT_MOUNT_ROOTS"]) / "data"
    mounted = spec(
        disk_mib=50,
        mounts=[{"source": str(folder), "target": "/data"}],
        command=["sh", "-c"],
        args=[f"{fills('/data/x', 100)}; sleep 600"],
    )
    careless = spec(disk_mib=50, command=["sh", "-c"], args=[f"{fills('/x', 100)}; sleep 600"])
    with agent.client() as client:
        launch(client, mounted)
        launch(client, careless)
        final(client, careless, ContainerStatus.FAILED)
        assert states(client)[mounted.id].status is ContainerStatus.RUNNING


@pytest.fixture
def image_with_a_volume(engine: docker.DockerClient, image: str) -> Iterator[str]:
    """An image that asks Docker for a volume of its own."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        text = f"FROM {image}\nVOLUME /scratch\n".encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    file.seek(0)
    reference = "penstock-test/volume:1"
    engine.images.build(fileobj=file, custom_context=True, tag=reference)
    yield reference
    engine.images.remove(reference, force=True)


def test_a_volume_of_an_image_counts(agent: Agent, spec: Make, image_with_a_volume: str) -> None:
    script = f"{fills('/scratch/x', 100)}; sleep 600"
    wanted = spec(image=image_with_a_volume, disk_mib=50, command=["sh", "-c"], args=[script])
    with agent.client() as client:
        launch(client, wanted)
        assert OVER.fullmatch(final(client, wanted, ContainerStatus.FAILED).error)
