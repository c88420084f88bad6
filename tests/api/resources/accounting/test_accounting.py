"""Accounting: what ran in a period, and what it held; the sums are those of the sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from api.clock import now
from api.resources.accounting import service
from api.tables.domains import Domain
from api.tables.projects import Project
from api.tables.sessions import Kind, Session, State
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

DAY = datetime(2026, 3, 1, tzinfo=UTC)
PROJECTS = {"team-a": uuid4(), "team-b": uuid4()}


def at(hours: float) -> datetime:
    return DAY + timedelta(hours=hours)


@dataclass(frozen=True)
class Ran:
    """A session as far as accounting goes."""

    user: str
    project: str
    milli: int
    user_id: UUID | None = None
    domain: str | None = None
    id: UUID = field(default_factory=uuid4)


async def run(cluster: Cluster, who: Ran, *spans: tuple[float, float | None]) -> None:
    async with cluster.database.transaction() as db:
        if who.domain and await db.get(Domain, who.domain) is None:
            db.add(Domain(name=who.domain))
            await db.flush()
        project_id = PROJECTS[who.project]
        if await db.get(Project, project_id) is None:
            db.add(Project(id=project_id, name=who.project, quota_milli=0, domain=who.domain))
        row = Session(id=who.id, name="s", project_id=project_id, user_id=who.user_id, user_name=who.user)
        row.image = row.reference = "python"
        row.kind, row.preemptible, row.gpu_milli, row.state = Kind.TRAINING, True, who.milli, State.TERMINATED
        row.args, row.environment, row.mounts = [], {}, []
        db.add(row)
    for start, end in spans:
        async with cluster.database.transaction() as db:
            await service.begin(db, who.id, at(start))
        if end is not None:
            async with cluster.database.transaction() as db:
                await service.end(db, who.id, at(end))


async def report(client: Any, by: str = "user", start: float = 0, end: float = 24) -> dict[str, Any]:
    params = {"starts_at": at(start).isoformat(), "ends_at": at(end).isoformat(), "by": by}
    return dict(await ok(client.get(f"{V1}/accounting", params=params)))


def figures(answer: dict[str, Any]) -> dict[str, tuple[int, float, float]]:
    return {row["name"]: (row["sessions"], row["session_seconds"], row["gpu_seconds"]) for row in answer["rows"]}


async def test_seconds_times_gpus_of_each_user_project_and_domain(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 500), (1, 3))
    await run(cluster, Ran("alice", "team-b", 4000, domain="acme"), (2, 2.5))
    await run(cluster, Ran("bobby", "team-a", 0), (0, 10))
    hour = 3600.0
    assert figures(await report(cluster.admin)) == {
        "alice": (2, 2.5 * hour, 0.5 * 2 * hour + 4 * 0.5 * hour),
        "bobby": (1, 10 * hour, 0.0),
    }
    assert figures(await report(cluster.admin, "project")) == {
        "team-a": (2, 12 * hour, 1 * hour),
        "team-b": (1, 0.5 * hour, 2 * hour),
    }
    assert figures(await report(cluster.admin, "domain")) == {
        "": (2, 12 * hour, 1 * hour),
        "acme": (1, 0.5 * hour, 2 * hour),
    }
    total = (await report(cluster.admin))["total"]
    assert (total["sessions"], total["session_seconds"], total["gpu_seconds"]) == (3, 12.5 * hour, 3 * hour)


async def test_a_requeued_session_counts_once_and_only_while_it_ran(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 1000), (1, 2), (5, 7))
    assert figures(await report(cluster.admin)) == {"alice": (1, 3 * 3600.0, 3 * 3600.0)}


async def test_only_the_part_within_the_period_counts(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 1000), (-5, 1))
    await run(cluster, Ran("alice", "team-a", 1000), (23, 30))
    await run(cluster, Ran("alice", "team-a", 1000), (40, 41))
    assert figures(await report(cluster.admin)) == {"alice": (2, 2 * 3600.0, 2 * 3600.0)}


async def test_what_still_runs_counts_up_to_now(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(cluster, Ran("alice", "team-a", 1000), (1, None))
    monkeypatch.setattr(service, "now", lambda: at(2))
    assert figures(await report(cluster.admin)) == {"alice": (1, 3600.0, 3600.0)}


async def test_a_beginning_or_an_end_that_comes_twice_counts_once(cluster: Cluster) -> None:
    who = Ran("alice", "team-a", 1000)
    await run(cluster, who, (1, None), (2, 3))
    async with cluster.database.transaction() as db:
        await service.end(db, who.id, at(9))
    assert figures(await report(cluster.admin)) == {"alice": (1, 2 * 3600.0, 2 * 3600.0)}


async def test_no_time_counts_twice_where_a_lost_session_comes_back(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 1000), (1, 5), (3, 7))
    assert figures(await report(cluster.admin)) == {"alice": (1, 6 * 3600.0, 6 * 3600.0)}


async def test_the_sums_are_those_of_the_sessions(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    for name, milli in (("one", 500), ("two", 2000)):
        await cluster.submit(name, milli)
    await cluster.settle()
    await cluster.heartbeat()
    await cluster.settle()
    rows = [await cluster.session(name) for name in ("one", "two")]
    assert [row["state"] for row in rows] == ["RUNNING", "RUNNING"]
    for row in rows:
        cluster.exit_container(row, 0)
    await cluster.heartbeat()
    await cluster.settle()
    rows = [await cluster.session(name) for name in ("one", "two")]
    expected = sum(seconds(row) * milli / 1000 for row, milli in zip(rows, (500, 2000), strict=True))
    [row] = (await ok(cluster.admin.get(f"{V1}/accounting", params={"by": "project"})))["rows"]
    assert (row["name"], row["sessions"]) == ("team-a", 2)
    assert row["session_seconds"] == pytest.approx(sum(map(seconds, rows)), abs=0.01)
    assert row["gpu_seconds"] == pytest.approx(expected, abs=0.01)


def seconds(row: dict[str, Any]) -> float:
    """Return how long a session ran, as the session says."""
    return (datetime.fromisoformat(row["finished_at"]) - datetime.fromisoformat(row["started_at"])).total_seconds()


async def test_who_sees_whose_accounting(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    async with await cluster.user("alice") as alice, await cluster.user("mona") as mona:
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"managers": ["mona"], "members": ["alice"]}))
        project = await ok(cluster.admin.get(f"{V1}/projects/team-a"))
        PROJECTS["team-a"] = UUID(project["id"])
        alice_id = UUID((await ok(alice.get(f"{V1}/auth/me")))["id"])
        await run(cluster, Ran("alice", "team-a", 1000, user_id=alice_id), (1, 2))
        await run(cluster, Ran("bobby", "team-a", 1000), (1, 2))
        await run(cluster, Ran("carol", "team-b", 1000), (1, 2))
        assert set(figures(await report(alice))) == {"alice"}
        assert set(figures(await report(mona))) == {"alice", "bobby"}
        assert set(figures(await report(cluster.admin))) == {"alice", "bobby", "carol"}


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"starts_at": "2026-03-02T00:00:00Z", "ends_at": "2026-03-01T00:00:00Z"}, "ends_at"),
        ({"starts_at": "2020-03-02T00:00:00Z", "ends_at": "2026-03-01T00:00:00Z"}, "ends_at"),
        ({"starts_at": "2026-03-02T00:00:00"}, "starts_at"),
        ({"ends_at": "9999-12-31T23:59:59-12:00"}, "ends_at"),
        ({"ends_at": "0001-01-01T00:00:00+12:00"}, "ends_at"),
        ({"by": "node"}, "by"),
    ],
)
async def test_a_bad_period_names_its_field(cluster: Cluster, params: dict[str, str], field: str) -> None:
    assert (await refused(cluster.admin.get(f"{V1}/accounting", params=params), 422))["where"] == field


async def test_a_clock_that_was_put_back_makes_no_time_that_is_less_than_none(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 1000), (3, 2))
    assert figures(await report(cluster.admin)) in ({}, {"alice": (1, 0.0, 0.0)})


async def test_what_was_held_over_time_is_the_same_as_in_all(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 2000), (1, 5), (6, 6.5))
    await run(cluster, Ran("bob", "team-a", 500), (2, 4.5))
    await run(cluster, Ran("bob", "team-b", 1000), (-10, 30))
    query = {"starts_at": at(0).isoformat(), "ends_at": at(8).isoformat(), "by": "project", "points": "8"}
    found = await ok(cluster.admin.get(f"{V1}/accounting/timeline", params=query))
    held = {series["name"]: series["gpu_milli"] for series in found["series"]}
    assert found["step_s"] == 3600
    assert held["team-a"] == [0, 2000, 2500, 2500, 2250, 0, 1000, 0]
    assert held["team-b"] == [1000] * 8
    report = await ok(cluster.admin.get(f"{V1}/accounting", params=query))
    for row in report["rows"]:
        assert sum(held[row["name"]]) * 3600 / 1000 == row["gpu_seconds"]


async def test_over_time_a_period_ends_now_and_a_bad_one_is_refused(cluster: Cluster) -> None:
    start = (now() - timedelta(hours=1)).isoformat()
    query = {"starts_at": start, "ends_at": (now() + timedelta(hours=1)).isoformat(), "points": "4"}
    await run(cluster, Ran("alice", "team-a", 1000))
    async with cluster.database.transaction() as db:
        (session,) = (await db.scalars(select(Session))).all()
        await service.begin(db, session.id, now() - timedelta(hours=2))
    (series,) = (await ok(cluster.admin.get(f"{V1}/accounting/timeline", params=query)))["series"]
    assert [round(milli, -1) for milli in series["gpu_milli"][:2]] == [1000, 1000]
    assert len(series["gpu_milli"]) <= 3, "nothing is told of what is to come"
    await refused(cluster.admin.get(f"{V1}/accounting/timeline", params={**query, "ends_at": start}), 422)
