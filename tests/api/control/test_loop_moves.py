"""Sessions that the scheduler's loop reclaims or moves for others, and how long these are spared."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.clock import now
from api.control.loop import Loop
from tests.api.cluster import V1, Cluster, ok
from tests.api.control.decisions import count_decisions, loop_of
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


async def test_a_session_is_taken_back_and_starts_again(ready: Cluster) -> None:
    """team-b uses what is idle until team-a asks for its own."""
    await ready.add_project("team-b", 0)
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    guest = await ready.session("guest", "team-b")
    assert guest["state"] == "RUNNING"
    await ready.submit("owner", gpu_milli=2000)
    await loop_of(ready).run()
    stopped = await ready.session("guest", "team-b")
    assert stopped["state"] == "TERMINATING"
    assert stopped["reason"].startswith("reclaimed for a session of another project: ")
    assert (await ready.session("owner"))["cause"] == "reclaiming"
    await ready.settle()
    assert (await ready.session("owner"))["state"] == "RUNNING"
    again = await ready.session("guest", "team-b")
    assert (again["state"], again["attempt"], again["node"]) == ("PENDING", 1, None)
    cycle = loop_of(ready).last
    assert cycle is not None
    (waiting,) = cycle.snapshot.queue
    assert waiting.waiting_since > waiting.submitted_at, "its wait counts from when it came back"
    await delete(ready, "owner")
    await ready.settle()
    again = await ready.session("guest", "team-b")
    assert (again["state"], again["attempt"]) == ("RUNNING", 1)
    assert f"session-{again['id']}-1-0" in {key for _, key in ready.engine.containers}


async def on_halves_of_two_gpus(cluster: Cluster) -> None:
    """Two of four GPUs are half in use each, and one session asks for three."""
    for name in ("h1", "h2", "h3", "h4"):
        await run(cluster, name, gpu_milli=500, cpu_milli=500, memory_mib=512)
    await run(cluster, "whole", gpu_milli=2000, cpu_milli=500, memory_mib=512, preemptible=False)
    for name in ("h2", "h4"):
        await delete(cluster, name)
    await cluster.settle()
    await cluster.submit("own", gpu_milli=1000, cpu_milli=500, memory_mib=512)


async def test_a_session_moves_where_that_lets_another_start(ready: Cluster) -> None:
    await on_halves_of_two_gpus(ready)
    await ready.settle()
    assert (await ready.session("own"))["state"] == "PENDING", "nobody is moved before the administrator wants it"
    wanted = {"consolidation": True, "moves_per_hour": 1}
    loop = ready.manager.loop = Loop(ready.database, ready.settings.model_copy(update=wanted))
    await loop.run()
    (moved,) = [each for each in (await ready.session("h1"), await ready.session("h3")) if each["state"] != "RUNNING"]
    assert moved["state"] == "TERMINATING"
    assert (
        moved["reason"]
        == "moved for team-a/own: own of team-a fits once it is elsewhere; room on worker1 is kept for it"
    )
    await ready.settle()
    found = [await ready.session(name) for name in ("h1", "h3", "own", "whole")]
    assert [(each["state"], each["attempt"]) for each in found] == [
        ("RUNNING", 1 if each["name"] == moved["name"] else 0) for each in found
    ]
    await delete(ready, "own")
    await delete(ready, "h1" if moved["name"] == "h3" else "h3")
    await ready.submit("next", gpu_milli=1000)
    await ready.settle()
    cycle = await Loop(ready.database, ready.settings).last_cycle()
    (known,) = [each.workload for each in cycle.snapshot.running if each.workload.name == moved["name"]]
    assert (known.moves, known.moved_at > 0) == (1, True)
    assert known.requeued_at > known.moved_at, "one that runs again tells when it was stopped"


async def test_who_is_moved_for_one_that_is_deleted_meanwhile_keeps_its_places(ready: Cluster) -> None:
    await on_halves_of_two_gpus(ready)
    loop = ready.manager.loop = Loop(ready.database, ready.settings.model_copy(update={"consolidation": True}))
    await loop.run()
    (moved,) = [name for name in ("h1", "h3") if (await ready.session(name))["state"] == "TERMINATING"]
    await delete(ready, "own")
    loop.rest()
    for name in ("late1", "late2", "late3"):
        await ready.submit(name, gpu_milli=500, cpu_milli=500, memory_mib=512)
    await loop.run()
    await ready.settle()
    assert (await ready.session(moved))["state"] == "RUNNING"


async def test_a_session_that_has_just_begun_is_spared_for_its_time(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(ready.database, ready.settings.model_copy(update={"min_runtime_s": 3600}))
    await ready.add_project("team-b", 0)
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    await ready.submit("owner", gpu_milli=2000)
    decided = count_decisions(monkeypatch)
    for _ in range(3):
        await loop.run()
    assert len(decided) == 1, "nothing is new"
    assert (await ready.session("guest", "team-b"))["state"] == "RUNNING"
    in_an_hour = now() + timedelta(seconds=3600)
    monkeypatch.setattr("api.control.loop.now", lambda: in_an_hour)
    await loop.run()
    assert (await ready.session("guest", "team-b"))["state"] == "TERMINATING"


async def test_a_project_spares_its_own_sessions_for_longer(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of(ready)
    await ready.add_project("team-b", 0)
    await ok(ready.admin.patch(f"{V1}/projects/team-b", json={"min_runtime_s": 3600}))
    await ready.submit("guest", project="team-b", gpu_milli=4000)
    await ready.settle()
    await ready.submit("owner", gpu_milli=2000)
    await loop.run()
    assert (await ready.session("guest", "team-b"))["state"] == "RUNNING"
    in_an_hour = now() + timedelta(seconds=3600)
    monkeypatch.setattr("api.control.loop.now", lambda: in_an_hour)
    await loop.run()
    assert (await ready.session("guest", "team-b"))["state"] == "TERMINATING"
