"""How long sessions waited: noted when they begin to run, told by whose they are and over time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text, update

from api.auth.identity import Reach
from api.clock import now
from api.resources.accounting import repository, service
from api.resources.accounting.schemas import By
from api.tables.accounting import Span
from api.tables.projects import Project
from api.tables.sessions import Kind, Session, State
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.accounting.test_accounting import at
from tests.api.steps import run

pytestmark = pytest.mark.anyio

HOUR = 3600.0


async def submitted(cluster: Cluster, project: str, hours: float, **values: Any) -> UUID:
    """Write a session that was submitted at an hour of the day."""
    async with cluster.database.transaction() as db:
        row = Session(name=f"s{uuid4().hex[:8]}", user_name="alice", state=State.TERMINATED, created_at=at(hours))
        row.project_id = await db.scalar(select(Project.id).where(Project.name == project)) or UUID(int=0)
        row.image = row.reference = "python"
        row.kind, row.preemptible, row.gpu_milli = Kind.TRAINING, True, 1000
        row.args, row.environment, row.mounts = [], {}, []
        for name, value in values.items():
            setattr(row, name, value)
        db.add(row)
        await db.flush()
        return row.id


async def began(cluster: Cluster, id_: UUID, start: float, end: float) -> None:
    async with cluster.database.transaction() as db:
        await service.begin(db, id_, at(start))
        await service.end(db, id_, at(end))


async def waited(cluster: Cluster, id_: UUID) -> list[float | None]:
    async with cluster.database.reading() as db:
        query = select(Span.waited_s).where(Span.session_id == id_).order_by(Span.started_at, Span.ended_at)
        return list(await db.scalars(query))


async def report(client: Any, **query: str) -> dict[str, Any]:
    params = {"starts_at": at(0).isoformat(), "ends_at": at(24).isoformat(), **query}
    return dict(await ok(client.get(f"{V1}/accounting/waits", params=params)))


def figures(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["count"], row["median_s"], row["p95_s"], row["longest_s"]


async def test_each_attempt_waits_since_it_was_submitted_or_went_back_to_the_queue(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    id_ = await submitted(cluster, "team-a", 1)
    await began(cluster, id_, 1.5, 4)
    await began(cluster, id_, 6, 7)
    assert await waited(cluster, id_) == [0.5 * HOUR, 2 * HOUR]


async def test_who_may_start_later_does_not_wait_until_then(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    id_ = await submitted(cluster, "team-a", 1, starts_at=at(5))
    await began(cluster, id_, 5.25, 6)
    assert await waited(cluster, id_) == [0.25 * HOUR]


async def test_what_only_goes_on_has_not_waited(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    resized, back = await submitted(cluster, "team-a", 1), await submitted(cluster, "team-a", 1)
    async with cluster.database.transaction() as db:
        await service.begin(db, resized, at(2))
        await service.reshare(db, resized, at(3))
    await began(cluster, back, 2, 5)
    await began(cluster, back, 3, 7)
    assert await waited(cluster, resized) == [HOUR, None]
    assert await waited(cluster, back) == [HOUR, None]


async def test_a_clock_that_was_put_back_makes_no_wait_that_is_less_than_none(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    id_ = await submitted(cluster, "team-a", 3)
    await began(cluster, id_, 2, 5)
    assert await waited(cluster, id_) == [0.0]


async def test_waits_of_projects_and_over_time(cluster: Cluster) -> None:
    for project in ("team-a", "team-b"):
        await cluster.add_project(project)
    for minutes in range(1, 21):
        await began(cluster, await submitted(cluster, "team-a", 1), 1 + minutes / 60, 20)
    await began(cluster, await submitted(cluster, "team-b", 2), 13, 14)
    await began(cluster, await submitted(cluster, "team-b", -5), -1, 14)
    found = await report(cluster.admin, points="2")
    assert {row["name"]: figures(row) for row in found["rows"]} == {
        "team-a": (20, 600.0, 19 * 60.0, 1200.0),
        "team-b": (1, 11 * HOUR, 11 * HOUR, 11 * HOUR),
    }
    assert figures(found["total"]) == (21, 660.0, 1200.0, 11 * HOUR)
    assert found["step_s"] == 12 * HOUR
    assert [figures(step) for step in found["steps"]] == [
        (20, 600.0, 19 * 60.0, 1200.0),
        (1, 11 * HOUR, 11 * HOUR, 11 * HOUR),
    ]


async def test_waits_of_one_size_stand_for_each_other(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    for seconds in range(1000, 1200):
        await began(cluster, await submitted(cluster, "team-a", 1), 1 + seconds / 3600, 20)
    (row,) = (await report(cluster.admin))["rows"]
    assert (row["count"], row["longest_s"]) == (200, 1199.0)
    assert 1099.0 <= row["median_s"] <= 1.05 * 1099
    assert 1189.0 <= row["p95_s"] <= 1199.0


async def test_each_report_is_planned_for_its_own_period(cluster: Cluster) -> None:
    """A plan for any period reads a million spans one by one, by the index of their starts."""
    reach = Reach(everything=True)
    generic = text("SELECT name, generic_plans FROM pg_prepared_statements WHERE statement ~ 'spans|days'")
    async with cluster.database.reading() as db:
        # tests before this one may have had the connection, which forgets the statements used longest ago
        before: dict[str, int] = dict((await db.execute(generic)).tuples().all())
        for hour in range(12):
            wanted = repository.Wanted(at(hour), at(hour + 1), reach, uuid4())
            await repository.waits_by(db, wanted, By.USER)
            await repository.waits_over_time(db, wanted, 60)
            await repository.spans_within(db, wanted, By.USER)
            await repository.steps_within(db, wanted, By.USER, 60)
            await repository.days_within(db, wanted, By.USER)
        after: dict[str, int] = dict((await db.execute(generic)).tuples().all())
    assert {name for name, count in after.items() if count > before.get(name, 0)} == set()


async def test_what_waits_now_is_told_apart(cluster: Cluster) -> None:
    await cluster.add_project("team-a")
    waits = {"state": State.PENDING, "created_at": now() - timedelta(hours=2)}
    await submitted(cluster, "team-a", 0, **waits)
    await submitted(cluster, "team-a", 0, **{**waits, "created_at": now() - timedelta(hours=1)})
    await submitted(cluster, "team-a", 0, **waits, starts_at=now() + timedelta(hours=1))
    again = await submitted(cluster, "team-a", 0, **{**waits, "created_at": now() - timedelta(hours=9)})
    async with cluster.database.transaction() as db:
        await service.begin(db, again, now() - timedelta(hours=8))
        await service.end(db, again, now() - timedelta(minutes=30))
    for by in ("project", "user", "domain"):
        found = await report(cluster.admin, by=by)
        (row,) = found["rows"]
        assert (row["count"], row["median_s"], row["waiting"]) == (0, None, 3)
        assert row["oldest_s"] == pytest.approx(2 * HOUR, abs=60)
        assert (found["total"]["waiting"], found["total"]["oldest_s"]) == (3, row["oldest_s"])


async def test_a_session_that_runs_says_how_long_it_waited(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a")
    await run(cluster, "first", gpu_milli=1000)
    row = await cluster.session("first")
    (found,) = await waited(cluster, UUID(row["id"]))
    started, created = (datetime.fromisoformat(row[name]) for name in ("started_at", "created_at"))
    assert found == pytest.approx(max(0.0, (started - created).total_seconds()), abs=0.001)


async def test_a_member_sees_the_own_waits_and_a_manager_those_of_the_project(cluster: Cluster) -> None:
    for project in ("team-a", "team-b"):
        await cluster.add_project(project)
        for _ in range(2):
            waits = await submitted(cluster, project, 1)
            await began(cluster, waits, 2, 3)
        await submitted(cluster, project, 0, state=State.PENDING)
    async with await cluster.user("mona") as mona, await cluster.user("carol") as carol:
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"managers": ["mona"], "members": ["carol"]}))
        carol_id = UUID((await ok(carol.get(f"{V1}/auth/me")))["id"])
        async with cluster.database.transaction() as db:
            await db.execute(update(Span).where(Span.session_id == waits).values(user_id=carol_id))
        assert [(row["name"], row["count"], row["waiting"]) for row in (await report(mona))["rows"]] == [
            ("team-a", 2, 1)
        ]
        assert [(row["name"], row["count"], row["waiting"]) for row in (await report(carol))["rows"]] == [
            ("team-b", 1, 0)
        ]


async def test_a_period_that_has_not_begun_has_no_waits_and_a_bad_one_is_refused(cluster: Cluster) -> None:
    later = {"starts_at": (now() + timedelta(days=1)).isoformat(), "ends_at": (now() + timedelta(days=2)).isoformat()}
    found = await report(cluster.admin, **later)
    assert (found["rows"], found["steps"], found["total"]["count"]) == ([], [], 0)
    told = await refused(
        cluster.admin.get(f"{V1}/accounting/waits", params={**later, "ends_at": later["starts_at"]}), 422
    )
    assert told["where"] == "ends_at"
