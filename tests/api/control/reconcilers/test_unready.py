"""Nodes whose agents report and start nothing, such as where sessions cannot be kept apart."""

from __future__ import annotations

import pytest

from api.resources.nodes.heartbeats import TIMES_WRONG
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import delete, listen, lose, run

pytestmark = pytest.mark.anyio

REASON = "sessions cannot be kept apart: there is no program nft"


async def run_of(cluster: Cluster, name: str, project: str, gpu_milli: int) -> None:
    await cluster.submit(name, gpu_milli, project)
    await cluster.settle()
    assert (await cluster.session(name, project))["state"] == "RUNNING"


async def shown(cluster: Cluster) -> tuple[str, str]:
    node = await ok(cluster.admin.get(f"{V1}/nodes/worker1"))
    return node["state"], node["message"]


async def test_it_says_why_and_takes_nothing_new_until_it_is_ready_again(ready: Cluster) -> None:
    await ready.heartbeat(unready=REASON)
    await ready.settle()
    assert await shown(ready) == ("unready", REASON)
    assert [node["name"] for node in (await ok(ready.admin.get(f"{V1}/nodes?state=unready")))] == ["worker1"]
    await ready.submit("demo")
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "PENDING"
    await ready.heartbeat()
    await ready.settle()
    assert await shown(ready) == ("ready", "")
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_nobody_is_stopped_on_it_to_make_room_and_no_room_is_kept_there(ready: Cluster) -> None:
    await ready.add_project("team-b", quota_milli=0)
    await run_of(ready, "guest", "team-b", gpu_milli=4000)
    await ready.heartbeat(unready=REASON)
    await ready.settle()
    await ready.submit("owner", gpu_milli=4000)
    await ready.settle()
    assert (await ready.session("guest", "team-b"))["state"] == "RUNNING"
    assert (await ready.session("owner"))["cause"] == "no-node"
    # what is free elsewhere is nobody's who waits for this one
    await ready.add_node("worker2")
    assert (await ready.session("owner"))["node"] == "worker2"


async def test_what_runs_on_it_goes_on_and_can_be_ended(ready: Cluster) -> None:
    await run(ready)
    await ready.heartbeat(unready=REASON)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"
    await delete(ready)
    await ready.settle()
    assert not ready.engine.containers


async def test_it_is_lost_as_any_other_node_and_comes_back_as_it_was(ready: Cluster) -> None:
    await ready.heartbeat(unready=REASON)
    await ready.settle()
    await listen(ready)
    assert (await shown(ready))[0] == "unready", "it lives as long as it reports, whatever it says"
    await lose(ready)
    assert (await shown(ready))[0] == "lost"
    await ready.heartbeat(unready=REASON)
    await ready.settle()
    assert await shown(ready) == ("unready", REASON)


async def test_whose_clock_is_wrong_besides_says_so_as_long_as_it_is(ready: Cluster) -> None:
    for _ in range(TIMES_WRONG):
        await ready.heartbeat(ahead_s=60)
    await ready.settle()
    wrong = "its clock is 60 s ahead of the API's: it takes nothing new; look at its chrony service"
    assert await shown(ready) == ("ready", wrong)
    for _ in range(2):
        await ready.heartbeat(unready=REASON, ahead_s=60)
        await ready.settle()
        assert await shown(ready) == ("unready", f"{REASON}; {wrong}")
    await ready.heartbeat(ahead_s=60)
    await ready.settle()
    assert await shown(ready) == ("ready", wrong), "it still takes nothing new"
    await ready.heartbeat(unready=REASON)
    await ready.settle()
    assert await shown(ready) == ("unready", REASON)
