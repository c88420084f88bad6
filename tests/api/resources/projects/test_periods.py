"""Periods of projects and what their quotas may come to: rows E1 to E3, M2 and M4."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.clock import now
from api.resources.projects import service
from api.tables.projects import Expiry
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

PROJECTS = f"{V1}/projects"


class Clock:
    """A clock that stands still until a test moves it on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def day(self, number: int) -> str:
        return (self.now + timedelta(days=number)).isoformat()

    def go_on(self, **by: int) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    frozen, real = Clock(), now
    for name, module in list(sys.modules.items()):
        room, _, rest = name.removeprefix("api.").partition(".")
        ours = room in ("resources", "endpoints", "lists") and rest.startswith(("projects", "sessions", "overview"))
        if ours and getattr(module, "now", None) is real:
            monkeypatch.setattr(module, "now", frozen)
    return frozen


def body(name: str = "team-a", gpus: int = 4, **more: Any) -> dict[str, Any]:
    return {"name": name, "quota_milli": gpus * 1000, "period": {"ends_at": None}, **more}


async def create(cluster: Cluster, *args: Any, **more: Any) -> dict[str, Any]:
    return dict(await ok(cluster.admin.post(PROJECTS, json=body(*args, **more))))


async def show(cluster: Cluster, name: str = "team-a") -> dict[str, Any]:
    return dict(await ok(cluster.admin.get(f"{PROJECTS}/{name}")))


@pytest.mark.parametrize(
    ("period", "where"),
    [
        (None, "period"),
        ({}, "period.ends_at"),
        ({"starts_at": "2026-03-01T00:00:00Z"}, "period.ends_at"),
        ({"starts_at": "2026-03-02T00:00:00Z", "ends_at": "2026-03-02T00:00:00Z"}, "period"),
        ({"starts_at": "2026-03-02T00:00:00Z", "ends_at": "2026-03-02T01:00:00+02:00"}, "period"),
        ({"ends_at": "2026-03-02"}, "period.ends_at"),
        ({"ends_at": "2026-03-02T00:00:00"}, "period.ends_at"),
        ({"ends_at": "9999-12-31T23:59:59-12:00"}, "period.ends_at"),
        ({"starts_at": "0001-01-01T00:00:00+12:00", "ends_at": None}, "period.starts_at"),
        ({"ends_at": 10**30}, "period.ends_at"),
        ({"ends_at": None, "until": None}, "period.until"),
        ("2026", "period"),
    ],
)
async def test_a_project_needs_a_period(cluster: Cluster, period: object, where: str) -> None:
    request = body(period=period)
    assert (await refused(cluster.admin.post(PROJECTS, json=request), 422))["where"] == where


async def test_a_period_that_is_left_out(cluster: Cluster) -> None:
    problem = await refused(cluster.admin.post(PROJECTS, json={"name": "team-a", "quota_milli": 1}), 422)
    assert problem == {"where": "period", "reason": "this is required", "hint": "add it"}


async def test_everything_of_a_project(cluster: Cluster, clock: Clock) -> None:
    """Rows E1 and M1."""
    for name in ("alice", "bob", "carol"):
        await cluster.user(name)
    for name in ("night", "day"):
        await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": name}))
    given = {
        "name": "team-a",
        "description": "Speech",
        "quota_milli": 4000,
        "over_quota": False,
        "over_quota_weight": 3,
        "period": {"starts_at": "2026-03-01T12:00:00Z", "ends_at": "2026-09-01T00:00:00Z"},
        "on_expiry": "finish",
        "managers": ["alice"],
        "members": ["bob", "carol"],
        "training_group": "night",
        "interactive_group": "day",
        "interactive_limit_s": 3600,
        "interactive_extension_s": 1800,
        "min_runtime_s": 900,
    }
    made = await ok(cluster.admin.post(PROJECTS, json=given))
    assert {key: made[key] for key in given} == given
    assert (made["active"], made["used_milli"], made["domain"]) == (True, 0, None)
    assert await show(cluster) == made


async def test_a_weight_is_a_number_or_none_or_no_part(cluster: Cluster) -> None:
    assert (await create(cluster))["over_quota_weight"] is None
    for weight in (0, 3, None):
        changed = await ok(cluster.admin.patch(f"{PROJECTS}/team-a", json={"over_quota_weight": weight}))
        assert changed["over_quota_weight"] == weight
        assert (await show(cluster))["over_quota_weight"] == weight


async def test_a_period_may_begin_now_and_have_no_end(cluster: Cluster, clock: Clock) -> None:
    made = await create(cluster)
    assert made["period"] == {"starts_at": "2026-03-01T12:00:00Z", "ends_at": None}
    clock.go_on(days=1000)
    assert (await show(cluster))["active"]


async def test_after_its_period_a_project_can_be_looked_at_but_not_used(cluster: Cluster, clock: Clock) -> None:
    """Row E3: its GPUs are free for others, and who has to stop its sessions finds it."""
    await cluster.add_node("worker1", 4)
    await cluster.add_image()
    await create(cluster, over_quota=False, period={"ends_at": clock.day(10)})
    await cluster.submit("before")
    clock.go_on(days=9)
    await refused(cluster.admin.post(PROJECTS, json=body("team-b", over_quota=False)), 409)
    clock.go_on(days=1)
    shown = await show(cluster)
    assert (shown["active"], shown["quota_milli"]) == (False, 4000)
    request = {"name": "after", "project": "team-a", "image": "python", "gpu_milli": 500}
    problem = await refused(cluster.admin.post(f"{V1}/sessions", json=request), 409)
    assert problem["reason"] == "project team-a is not active: its period ended on 2026-03-11 12:00 UTC"
    await create(cluster, "team-b", over_quota=False)
    async with cluster.database.reading() as db:
        (project,) = await service.expired(db, clock())
        assert (project.name, project.on_expiry) == ("team-a", Expiry.STOP)
        assert service.quota_at(project, clock()) == 0
        assert service.quota_at(project, clock() - timedelta(seconds=1)) == 4000
    await ok(cluster.admin.get(f"{V1}/sessions/before", params={"project": "team-a"}))


async def test_before_its_period_a_project_cannot_be_used(cluster: Cluster, clock: Clock) -> None:
    await cluster.add_image()
    await create(cluster, period={"starts_at": clock.day(1), "ends_at": None})
    request = {"name": "early", "project": "team-a", "image": "python", "gpu_milli": 500}
    problem = await refused(cluster.admin.post(f"{V1}/sessions", json=request), 409)
    assert problem["reason"] == "project team-a is not active: its period begins on 2026-03-02 12:00 UTC"
    async with cluster.database.reading() as db:
        assert await service.expired(db, clock()) == []
    clock.go_on(days=1)
    await ok(cluster.admin.post(f"{V1}/sessions", json=request))


async def test_a_longer_period_makes_a_project_active_again(cluster: Cluster, clock: Clock) -> None:
    made = await create(cluster, period={"ends_at": clock.day(1)})
    clock.go_on(days=2)
    changed = await ok(cluster.admin.patch(f"{PROJECTS}/team-a", json={"period": {"ends_at": clock.day(1)}}))
    assert changed["active"]
    assert changed["period"]["starts_at"] == made["period"]["starts_at"], "a start that is left out stays"
    problem = await refused(
        cluster.admin.patch(f"{PROJECTS}/team-a", json={"period": {"ends_at": "2026-01-01T00:00:00Z"}}), 422
    )
    assert problem["where"] == "period.ends_at"


async def test_hard_quotas_are_held_for_their_whole_periods(cluster: Cluster, clock: Clock) -> None:
    """Row E2: at no instant do they come to more than the cluster has; the refusal says when and how much."""
    await cluster.add_node("worker1", 8)
    await create(cluster, "spring", 5, over_quota=False, period={"ends_at": clock.day(10)})
    await create(cluster, "summer", 6, over_quota=False, period={"starts_at": clock.day(10), "ends_at": clock.day(20)})
    await create(cluster, "soft", 100)
    request = body("all-year", 3, over_quota=False)
    problem = await refused(cluster.admin.post(PROJECTS, json=request), 409)
    assert problem["where"] == "quota_milli"
    assert problem["reason"] == (
        "from 2026-03-11 12:00 UTC the hard quotas would come to 9 GPUs, and the cluster has 8"
    )
    assert [row["name"] for row in await ok(cluster.admin.get(PROJECTS))] == ["soft", "spring", "summer"]
    await create(cluster, "all-year", 2, over_quota=False)
    await refused(cluster.admin.patch(f"{PROJECTS}/all-year", json={"quota_milli": 3000}), 409)
    await refused(cluster.admin.patch(f"{PROJECTS}/soft", json={"over_quota": False}), 409)
    longer = {"period": {"ends_at": clock.day(11)}}
    problem = await refused(cluster.admin.patch(f"{PROJECTS}/spring", json=longer), 409)
    assert problem["where"] == "period"
    await ok(cluster.admin.patch(f"{PROJECTS}/summer", json={"over_quota": True}))
    await ok(cluster.admin.patch(f"{PROJECTS}/spring", json=longer))


async def test_a_project_may_always_be_made_smaller(cluster: Cluster) -> None:
    """The cluster shrank below what is held: nothing may grow, everything may shrink or be described anew."""
    await cluster.add_node("worker1", 8)
    await create(cluster, "team-a", 6, over_quota=False)
    await cluster.add_node("worker1", 4)
    await ok(cluster.admin.patch(f"{PROJECTS}/team-a", json={"description": "Speech"}))
    await ok(cluster.admin.patch(f"{PROJECTS}/team-a", json={"quota_milli": 5000}))
    await refused(cluster.admin.patch(f"{PROJECTS}/team-a", json={"quota_milli": 5001}), 409)


async def test_soft_quotas_above_the_cluster_are_told(cluster: Cluster, clock: Clock) -> None:
    """Row M2."""
    await cluster.add_node("worker1", 4)
    assert (await create(cluster, "team-a", 4))["warnings"] == []
    later = {"starts_at": clock.day(5), "ends_at": clock.day(6)}
    (warning,) = (await create(cluster, "team-b", 1, period=later))["warnings"]
    assert warning == "from 2026-03-06 12:00 UTC the quotas of all projects come to 5 GPUs, and the cluster has 4"
    assert (await show(cluster))["warnings"] == [warning], "the other one hears of it, too"
    assert (await create(cluster, "team-c", 0, period={"ends_at": clock.day(5)}))["warnings"] == []
    clock.go_on(days=6)
    assert (await show(cluster))["warnings"] == []


async def test_without_a_node_nothing_is_refused_but_told(cluster: Cluster) -> None:
    made = await create(cluster, "team-a", 100, over_quota=False)
    assert made["warnings"] == ["no node is known yet: nothing says whether the quotas fit the cluster"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"over_quota": None}, "over_quota"),
        ({"limit_milli": -1}, "limit_milli"),
        ({"over_quota_weight": -1}, "over_quota_weight"),
        ({"over_quota_weight": 10**9}, "over_quota_weight"),
        ({"on_expiry": "explode"}, "on_expiry"),
        ({"interactive_limit_s": -1}, "interactive_limit_s"),
        ({"interactive_extension_s": 10**12}, "interactive_extension_s"),
        ({"training_group": "nowhere"}, "training_group"),
        ({"interactive_group": "A"}, "interactive_group"),
        ({"managers": ["nobody"]}, "managers"),
        ({"period": None}, "period"),
        ({"members": None}, "members"),
        ({"domain": "nowhere"}, "domain"),
        ({"name": "other"}, "name"),
    ],
)
async def test_bad_changes(cluster: Cluster, change: dict[str, Any], where: str) -> None:
    await create(cluster)
    before = await show(cluster)
    assert (await refused(cluster.admin.patch(f"{PROJECTS}/team-a", json=change), 422))["where"] == where
    assert await show(cluster) == before
