"""What the head of a real container's log tells of NCCL, however much is written after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from common.gpu.share import GpuShare
from common.nccl import NcclEvidence
from common.protocol import ContainerSpec, ContainerStatus, Mount
from tests.integration.agent.calls import launch, log_of, states, wait_for
from tests.integration.agent.conftest import Agent

Make = Callable[..., ContainerSpec]

BOTH = [GpuShare(uuid=f"SIM-worker1-{index}", index=index, milli=1000) for index in (0, 1)]
LINE = "NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC"
SEEN = NcclEvidence(p2p=True, p2p_line=LINE)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def script(rest: str) -> dict[str, list[str]]:
    return {"command": ["sh", "-c"], "args": [f"echo 'h:1:2 [0] {LINE}'; {rest}"]}


def test_the_head_of_a_log_counts_when_docker_has_it_no_more(node: Agent, spec: Make) -> None:
    node.environment |= {"PENSTOCK_AGENT_CONTAINER_LOG_MIB": "1", "PENSTOCK_AGENT_CONTAINER_LOG_FILES": "2"}
    node.start()
    folder = Path(node.environment["PENSTOCK_AGENT_MOUNT_ROOTS"]) / "signs"
    folder.mkdir()
    # Docker writes each of these bytes as six
    rest = "until [ -e /signs/go ]; do sleep 0.1; done; busybox dd if=/dev/zero bs=4096 count=150; sleep 60"
    mount = Mount(source=str(folder), target="/signs", read_only=True)
    wanted = spec(gpus=BOTH, mounts=[mount], **script(rest))
    with node.client() as client:
        launch(client, wanted)
        until(lambda: states(client)[wanted.id].nccl == SEEN)
        (folder / "go").touch()
        until(lambda: LINE not in client.get(f"/v1/containers/{wanted.id}/logs").text)
        assert states(client)[wanted.id].nccl == SEEN


def test_who_learns_that_a_container_has_ended_learns_what_its_log_told(agent: Agent, spec: Make) -> None:
    wanted = spec(gpus=BOTH, **script("exit 0"))
    with agent.client() as client:
        launch(client, wanted)
        assert wait_for(client, wanted.id, ContainerStatus.EXITED).nccl == SEEN


def test_the_log_of_what_has_one_gpu_is_left_alone(agent: Agent, spec: Make) -> None:
    wanted = spec(gpus=BOTH[:1], **script("exit 0"))
    with agent.client() as client:
        launch(client, wanted)
        assert LINE in log_of(client, wanted.id)
        assert states(client)[wanted.id].nccl is None
