"""Quotas of CPU and memory: what may be said of them, by whom, what is refused, and what the scheduler is told."""

from __future__ import annotations

from typing import Any

import pytest

from api.scheduler.snapshot import Bounds, Snapshot
from api.settings import Launching
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.control.decisions import loop_of
from tests.api.resources.domains.test_domains import two_companies
from tests.api.resources.domains.test_limits import add_project
from tests.api.steps import body, run

pytestmark = pytest.mark.anyio

TEAM = f"{V1}/projects/team-a"
QUOTAS = {"cpu_quota_milli": 8000, "cpu_limit_milli": 16_000, "memory_quota_mib": 4096, "memory_limit_mib": None}


async def test_they_are_kept_shown_and_taken_away(ready: Cluster) -> None:
    changed = await ok(ready.admin.patch(TEAM, json=QUOTAS))
    assert {name: changed[name] for name in QUOTAS} == QUOTAS
    changed = await ok(ready.admin.patch(TEAM, json=dict.fromkeys(QUOTAS)))
    assert {name: changed[name] for name in QUOTAS} == dict.fromkeys(QUOTAS)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"cpu_limit_milli": 1000}, "cpu_limit_milli"),
        ({"memory_quota_mib": 10, "memory_limit_mib": 9}, "memory_limit_mib"),
        ({"cpu_quota_milli": 1, "cpu_limit_milli": 2, "over_quota": False}, "cpu_limit_milli"),
        ({"memory_quota_mib": -1}, "memory_quota_mib"),
    ],
)
async def test_a_limit_stands_above_a_quota(ready: Cluster, change: dict[str, Any], where: str) -> None:
    assert (await refused(ready.admin.patch(TEAM, json=change), 422))["where"] == where


async def test_what_would_wait_for_ever_is_refused(ready: Cluster) -> None:
    await ok(ready.admin.patch(TEAM, json={"cpu_quota_milli": 1000, "cpu_limit_milli": 3000}))
    large = body("large", gpu_milli=0, cpu_milli=2000, replicas=2)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=large), 422)
    assert (error["reason"], error["where"]) == ("team-a may hold 3 CPU, and 4 CPU are asked for", "cpu_milli")
    desk = body("desk", gpu_milli=0, cpu_milli=2000, interactive=True)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=desk), 422)
    assert error["reason"] == "team-a may hold 1 CPU by work that cannot be reclaimed, and 2 CPU are asked for"
    await ok(ready.admin.post(f"{V1}/sessions", json=body("fits", gpu_milli=0, cpu_milli=3000)))


async def test_the_scheduler_knows_them_and_outside_a_period_there_is_no_guarantee(ready: Cluster) -> None:
    await ok(ready.admin.patch(TEAM, json=QUOTAS))
    for name in ("first", "waits"):
        await ready.submit(name, gpu_milli=0, cpu_milli=8000, memory_mib=1024, replicas=1)
    await loop_of(ready).run()
    (project,) = _snapshot(ready).projects
    assert (project.cpu, project.memory) == (Bounds(8000, 16_000), Bounds(4096))
    await ok(
        ready.admin.patch(
            TEAM, json={"period": {"starts_at": "2000-01-01T00:00:00Z", "ends_at": "2000-01-02T00:00:00Z"}}
        )
    )
    await loop_of(ready).run()
    (project,) = _snapshot(ready).projects
    assert (project.cpu, project.memory) == (Bounds(0, 16_000), Bounds(0))


async def test_only_the_site_gives_them(cluster: Cluster) -> None:
    """They take from all others, and no domain has a quota of them."""
    dora, _ = await two_companies(cluster)
    await add_project(dora, "rockets")
    for change in ({"cpu_quota_milli": 1000}, {"memory_quota_mib": 0}):
        error = await refused(dora.patch(f"{V1}/projects/rockets", json=change), 403)
        assert error["where"] == next(iter(change))
    await ok(cluster.admin.patch(f"{V1}/projects/rockets", json={"cpu_quota_milli": 1000}))
    await refused(dora.patch(f"{V1}/projects/rockets", json={"cpu_quota_milli": None}), 403)
    await ok(dora.patch(f"{V1}/projects/rockets", json={"cpu_quota_milli": 1000, "description": "to Mars"}))


async def test_a_cap_of_the_site_is_lifted_by_the_site_alone(cluster: Cluster) -> None:
    """Without a hard cap of GPUs a quota of CPU or memory bounds nothing, but where it has a limit."""
    dora, _ = await two_companies(cluster)
    await add_project(dora, "rockets")
    rockets = f"{V1}/projects/rockets"
    await ok(cluster.admin.patch(rockets, json={"memory_quota_mib": 1024, "over_quota": False}))
    error = await refused(dora.patch(rockets, json={"over_quota": True}), 403)
    assert error["where"] == "over_quota"
    await ok(dora.patch(rockets, json={"over_quota": False, "description": "to Mars"}))
    await ok(cluster.admin.patch(rockets, json={"over_quota": True, "memory_limit_mib": 2048}))
    await ok(cluster.admin.patch(rockets, json={"over_quota": False, **dict.fromkeys(QUOTAS)}))
    await ok(dora.patch(rockets, json={"over_quota": True}))


async def test_where_slurm_lends_whole_cores_count(ready: Cluster) -> None:
    """The scheduler counts them so: what would wait for ever is refused, too."""
    ready.app.state.settings = ready.settings.model_copy(update={"engine": Launching.SLURM})
    await ok(ready.admin.patch(TEAM, json={"cpu_quota_milli": 1500}))
    desk = body("desk", gpu_milli=0, cpu_milli=1500, interactive=True)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=desk), 422)
    assert "may hold 1.5 CPU by work that cannot be reclaimed, and 2 CPU are asked for" in error["reason"]
    await ok(ready.admin.patch(TEAM, json={"cpu_quota_milli": 2000}))
    session = await run(ready, "desk", gpu_milli=0, cpu_milli=1500, interactive=True)
    assert session["cpu_milli"] == 1500
    await ok(ready.admin.patch(TEAM, json={"cpu_quota_milli": 1500}))
    restart = ready.admin.post(f"{V1}/sessions/desk/restart", params={"project": "team-a"})
    assert "2 CPU are asked for" in (await refused(restart, 409))["reason"]


def _snapshot(cluster: Cluster) -> Snapshot:
    cycle = loop_of(cluster).last
    assert cycle is not None
    return cycle.snapshot
