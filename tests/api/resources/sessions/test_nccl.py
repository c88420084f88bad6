"""What NCCL told in the logs of containers, as people see it, and as it stays."""

from __future__ import annotations

import pytest

from common.nccl import NcclEvidence
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio

SHM, P2P = "NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct", "NCCL INFO Channel 01 : 0[0] -> 2[2] via P2P/IPC"


async def seen(cluster: Cluster, evidence: NcclEvidence | None) -> object:
    """Let the agent tell this of the session's container, and return what the session then shows."""
    cluster.change_container(await cluster.session("demo"), nccl=evidence)
    await cluster.heartbeat(gpus=3)
    await cluster.settle()
    listed = (await ok(cluster.admin.get(f"{V1}/sessions")))[0]["containers"][0]["nccl"]
    shown = (await cluster.session("demo"))["containers"][0]["nccl"]
    assert listed == shown
    return shown


async def test_what_was_seen_stays_and_the_rest_follows(ready: Cluster) -> None:
    await run(ready)
    assert await seen(ready, None) is None
    first = NcclEvidence(version="2.21.5", p2p=False, p2p_line=SHM)
    assert await seen(ready, first) == first.model_dump()
    later = NcclEvidence(p2p=True, p2p_line=P2P)
    both = first.model_copy(update=later.model_dump(exclude_defaults=True))
    assert await seen(ready, later) == both.model_dump()
    assert await seen(ready, None) == both.model_dump(), "an agent that was restarted may find the head no more"


async def test_what_comes_with_the_end_is_kept_with_the_session(ready: Cluster) -> None:
    await run(ready)
    said = NcclEvidence(p2p=True, p2p_line=P2P)
    session = await ready.session("demo")
    ready.change_container(session, nccl=said, status=ContainerStatus.EXITED, exit_code=0)
    await ready.heartbeat(gpus=3)
    await ready.settle()
    ended = await ready.session("demo")
    assert (ended["state"], ended["containers"][0]["nccl"]) == ("TERMINATED", said.model_dump())


async def run(cluster: Cluster) -> None:
    wanted = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 2000}
    await ok(cluster.admin.post(f"{V1}/sessions", json=wanted))
    await cluster.settle()
    await cluster.heartbeat(gpus=3)
    await cluster.settle()
