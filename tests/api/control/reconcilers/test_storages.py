"""Nodes that lack a storage: they say so, and what mounts it runs elsewhere or waits, and fails nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import once

pytestmark = pytest.mark.anyio

GONE = "the storage shared is not mounted on this node"
MISSING = {"shared": GONE}
PVC = {"pvcs": [{"name": "data", "target": "/data"}]}


@pytest.fixture
async def mounting(ready: Cluster) -> dict[str, Any]:
    """What a session says that mounts a volume."""
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    return PVC


async def test_it_says_so_and_takes_what_mounts_nothing(ready: Cluster, mounting: dict[str, Any]) -> None:
    await ready.heartbeat(missing_storages=MISSING)
    await ready.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["state"], node["missing_storages"]) == ("ready", MISSING)
    assert (await ok(ready.admin.get(f"{V1}/nodes")))[0]["missing_storages"] == MISSING
    await ready.submit("mounts", **mounting)
    await ready.submit("bare")
    await ready.settle()
    assert await ready.states() == {"mounts": "PENDING", "bare": "RUNNING"}
    waiting = await ready.session("mounts")
    assert waiting["reason"].startswith("no node that it may use has the storage shared that it mounts")
    await ready.heartbeat()
    await ready.settle()
    assert (await ready.session("mounts"))["state"] == "RUNNING"


@pytest.mark.parametrize("interactive", [False, True])
async def test_one_whose_storage_went_before_its_start_goes_back_into_the_queue(
    ready: Cluster, mounting: dict[str, Any], *, interactive: bool
) -> None:
    ready.engine.refuse_storage = {"worker1": GONE}
    await ready.submit("demo", interactive=interactive, **mounting)
    while not any(call == "launch" for call, _, _ in ready.engine.calls):
        await once(ready)
    await ready.heartbeat(missing_storages=MISSING)
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["attempt"]) == ("PENDING", 1)
    assert not ready.engine.containers
    ready.engine.refuse_storage = {}
    await ready.add_node("worker2")
    assert ((session := await ready.session("demo"))["state"], session["node"]) == ("RUNNING", "worker2")
    assert all(state.status is ContainerStatus.RUNNING for state in ready.engine.containers.values())
