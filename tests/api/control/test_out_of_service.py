"""Sessions that wait while nodes are out of service: what they are told, and that they start then."""

from __future__ import annotations

import pytest

from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import run

pytestmark = pytest.mark.anyio


async def set_mode(cluster: Cluster, name: str, mode: str) -> None:
    await ok(cluster.admin.patch(f"{V1}/nodes/{name}/mode", json={"mode": mode}))


async def test_it_reads_what_is_free_there_and_that_quotas_are_too_much(ready: Cluster) -> None:
    await ready.add_node("worker2", 2)
    await set_mode(ready, "worker2", "maintenance")
    await ready.add_project("team-b", 2000)
    await run(ready, gpu_milli=4000)
    await ready.submit("next", gpu_milli=1000, project="team-b")
    await ready.settle()
    waits = await ready.session("next", "team-b")
    assert (waits["state"], waits["cause"]) == ("PENDING", "no-room")
    assert waits["reason"] == (
        "no node has 1 GPU free; every GPU in service that it may use is in use; free on nodes out of service: 2 GPUs "
        "(worker2); ask the administrator when they come back; all quotas come to 6 GPUs and nodes in service have "
        "4 GPUs: other projects hold 4 GPUs within what is guaranteed to them"
    )
    await set_mode(ready, "worker2", "active")
    await ready.settle()
    assert (await ready.session("next", "team-b"))["state"] == "RUNNING"
