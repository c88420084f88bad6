"""What agents say that sessions used of their GPUs is kept for a while, and shown to who may see the session."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from api.auth.policy import UserRole
from api.clock import now
from api.resources.metrics import repository, service
from api.tables.metrics import GpuHour, GpuSample
from common.protocol import METRICS_PATH, GpuMetrics, MetricsReport
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import pass_time

pytestmark = pytest.mark.anyio


async def report(
    cluster: Cluster, *samples: GpuMetrics, node: str = "worker1", agent: str = "worker1"
) -> httpx.Response:
    body = MetricsReport(name=node, samples=list(samples)).model_dump(mode="json")
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": agent}) as client:
        return await client.post(METRICS_PATH, json=body)


def sample(session: dict[str, Any], at: datetime, memory_mib: int = 100, **more: Any) -> GpuMetrics:
    fields = {"container_id": f"session-{session['id']}-0-0", "session_id": session["id"], "uuid": "GPU-worker1-0"}
    return GpuMetrics(**{**fields, "at": at, "memory_mib": memory_mib, "processes": 1, **more})


async def count(cluster: Cluster) -> int:
    async with cluster.database.reading() as db:
        packed = int(await db.scalar(select(func.sum(func.cardinality(GpuHour.samples)))) or 0)
        return packed + ((await db.scalar(select(func.count()).select_from(GpuSample))) or 0)


async def pack(cluster: Cluster) -> int:
    async with cluster.database.transaction() as db:
        return await service.pack(db, now())


async def shown_between(cluster: Cluster, since: datetime, until: datetime) -> dict[datetime, dict[str, Any]]:
    """The points of the only series by their moments, as fine as they are kept."""
    shown = await metrics(cluster, since=since.isoformat(), until=until.isoformat(), points=1000)
    (series,) = shown["series"]
    return {datetime.fromisoformat(point["at"]): point for point in series["points"]}


async def hours(cluster: Cluster) -> int:
    async with cluster.database.reading() as db:
        return (await db.scalar(select(func.count()).select_from(GpuHour))) or 0


async def metrics(cluster: Cluster, **query: Any) -> dict[str, Any]:
    return dict(await ok(cluster.admin.get(f"{V1}/sessions/a/metrics", params={"project": "team-a", **query})))


@pytest.fixture
async def session(cluster: Cluster) -> dict[str, Any]:
    """A session that runs."""
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await cluster.submit("a", 500)
    await cluster.settle()
    return await cluster.session("a")


async def test_samples_come_back_as_a_series(cluster: Cluster, session: dict[str, Any]) -> None:
    moment = now().replace(microsecond=0)
    samples = [sample(session, moment - timedelta(seconds=16 * n), 100 + n, busy_permille=10 * n) for n in range(4)]
    assert (await report(cluster, *samples)).status_code == 204
    shown = await metrics(cluster)
    assert shown["session_id"] == session["id"]
    assert shown["step_s"] == 16, "an hour in 240 points"
    (series,) = shown["series"]
    assert (series["rank"], series["uuid"]) == (0, "GPU-worker1-0")
    assert [(point["memory_mib"], point["busy_permille"]) for point in series["points"]] == [
        (103, 30),
        (102, 20),
        (101, 10),
        (100, 0),
    ]


async def test_where_nobody_can_tell_how_busy_it_was(cluster: Cluster, session: dict[str, Any]) -> None:
    await report(cluster, sample(session, now()))
    assert (await metrics(cluster))["series"][0]["points"][0]["busy_permille"] is None


async def test_many_samples_become_few_points(cluster: Cluster, session: dict[str, Any]) -> None:
    """The most of memory and processes, the mean of what was busy."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    settings = cluster.settings.model_copy(update={"metrics_keep_s": 1e9})
    cluster.app.state.settings = settings
    samples = [
        sample(session, start + timedelta(seconds=15 * n), n, busy_permille=n % 2 * 1000, processes=n % 3)
        for n in range(240)
    ]
    await report(cluster, *samples)
    until = start + timedelta(hours=1)
    shown = await metrics(cluster, since=start.isoformat(), until=until.isoformat(), points=4)
    (series,) = shown["series"]
    assert shown["step_s"] == 901
    assert [(point["memory_mib"], point["processes"]) for point in series["points"]] == [
        (60, 2),
        (120, 2),
        (180, 2),
        (239, 2),
    ]
    assert all(abs(point["busy_permille"] - 500) < 10 for point in series["points"])
    assert series["points"][1]["at"] == "2026-01-01T00:15:01Z"


async def test_a_sample_counts_once(cluster: Cluster, session: dict[str, Any]) -> None:
    """A report that was not answered is sent again."""
    samples = [sample(session, now() - timedelta(seconds=15 * n)) for n in range(3)]
    await report(cluster, *samples, samples[0])
    await report(cluster, *samples)
    assert await count(cluster) == 3


async def test_one_second_has_one_sample(cluster: Cluster, session: dict[str, Any]) -> None:
    moment = now().replace(microsecond=0)
    await report(cluster, sample(session, moment, 100))
    await report(cluster, sample(session, moment, 200), sample(session, moment - timedelta(seconds=30), 50))
    (series,) = (await metrics(cluster))["series"]
    assert [point["memory_mib"] for point in series["points"]] == [50, 100]


async def test_samples_of_an_hour_share_a_row_once_it_is_over(cluster: Cluster, session: dict[str, Any]) -> None:
    # the last of them is in the next hour, which is over for long enough only then
    hour = now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    at = [hour + timedelta(seconds=seconds) for seconds in (-15, 0, 15, 3585, 3600)]
    await report(cluster, *(sample(session, moment, 7, busy_permille=n) for n, moment in enumerate(at)))
    before = await shown_between(cluster, at[0], at[-1])
    assert [point["busy_permille"] for point in before.values()] == [0, 1, 2, 3, 4]
    assert await hours(cluster) == 0
    assert await pack(cluster) == 3
    assert (await hours(cluster), await count(cluster)) == (3, 5)
    assert await shown_between(cluster, at[0], at[-1]) == before
    assert list(await shown_between(cluster, at[1], at[2])) == at[1:3]
    assert await pack(cluster) == 0


async def test_the_hour_that_goes_on_is_not_packed(cluster: Cluster, session: dict[str, Any]) -> None:
    await report(cluster, sample(session, now()))
    assert await pack(cluster) == 0


async def test_samples_of_a_moment_ago_are_not_packed_when_their_hour_ends(
    cluster: Cluster, session: dict[str, Any]
) -> None:
    hour = now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    await report(cluster, sample(session, hour - timedelta(minutes=1)))
    for minutes, packed in ((14, 0), (15, 1)):
        async with cluster.database.transaction() as db:
            assert await service.pack(db, hour + timedelta(minutes=minutes)) == packed


async def test_late_samples_join_their_hour(cluster: Cluster, session: dict[str, Any]) -> None:
    """An agent that was away tells what it has kept, and some of it again."""
    hour = now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    early, late = [[sample(session, hour + timedelta(seconds=s), s) for s in each] for each in ((0, 15), (15, 30))]
    await report(cluster, *early)
    await pack(cluster)
    await report(cluster, *late)
    assert len(await shown_between(cluster, hour, hour + timedelta(minutes=1))) == 3
    assert await pack(cluster) == 1
    assert (await hours(cluster), await count(cluster)) == (1, 3)
    assert len(await shown_between(cluster, hour, hour + timedelta(minutes=1))) == 3


async def test_samples_are_packed_a_part_at_a_time(
    cluster: Cluster, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "PACKED", 7)
    hour = now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    moments = [hour + timedelta(seconds=15 * n) for n in range(10)]
    await report(cluster, *(sample(session, moment, uuid=f"GPU-{n}") for moment in moments for n in range(3)))
    before = await metrics(cluster, since=hour.isoformat(), points=1000)
    pass_time(cluster, timedelta(hours=3).total_seconds())
    await cluster.settle()
    assert (await hours(cluster), await count(cluster)) == (3, 30)
    after = await metrics(cluster, since=hour.isoformat(), until=before["until"], points=1000)
    assert [series["points"] for series in after["series"]] == [series["points"] for series in before["series"]]


async def test_figures_that_no_card_has_stay_within_their_part(cluster: Cluster, session: dict[str, Any]) -> None:
    hour = now() - timedelta(hours=2)
    await report(cluster, sample(session, hour, 2**31, processes=2**30, busy_permille=1000))
    await report(cluster, sample(session, hour - timedelta(seconds=15), 0, processes=0))
    await pack(cluster)
    nothing, most = (await shown_between(cluster, hour - timedelta(seconds=30), hour)).values()
    assert (most["memory_mib"], most["processes"], most["busy_permille"]) == (2**24 - 1, 2**16 - 1, 1000)
    assert (nothing["memory_mib"], nothing["processes"], nothing["busy_permille"]) == (0, 0, None)


async def test_two_reports_at_once_lose_nothing(cluster: Cluster, session: dict[str, Any]) -> None:
    moment = now().replace(microsecond=0)
    samples = [sample(session, moment - timedelta(seconds=15 * n), uuid=f"GPU-{n % 3}") for n in range(60)]
    await asyncio.gather(*(report(cluster, *samples[start::4]) for start in range(4)))
    assert await count(cluster) == 60


async def test_samples_of_containers_that_no_session_has_there(cluster: Cluster, session: dict[str, Any]) -> None:
    await cluster.add_node("worker2")
    moment = now()
    strange = [
        sample(session, moment, container_id="session-1-0-0"),
        sample(session, moment, container_id=f"session-{session['id']}-1-0"),
        sample(session, moment, session_id="not-an-id"),
        sample(session, moment, session_id="00000000-0000-0000-0000-000000000001"),
    ]
    assert (await report(cluster, *strange)).status_code == 204
    await report(cluster, sample(session, moment), node="worker2", agent="worker2")
    assert await count(cluster) == 0


@pytest.mark.parametrize("away", [timedelta(days=-8), timedelta(hours=1)])
async def test_samples_of_a_time_that_is_not_kept(cluster: Cluster, session: dict[str, Any], away: timedelta) -> None:
    await report(cluster, sample(session, now() + away), sample(session, now()))
    assert await count(cluster) == 1


async def test_old_samples_are_forgotten(cluster: Cluster, session: dict[str, Any]) -> None:
    await report(cluster, *(sample(session, now() - timedelta(days=days)) for days in (0, 3, 6)))
    pass_time(cluster, timedelta(days=2).total_seconds())
    await cluster.settle()
    assert await count(cluster) == 2
    cluster.clock.ahead = timedelta(days=20)
    await cluster.settle()
    assert await count(cluster) == 2, "it is not looked for all the time"


async def test_an_agent_speaks_for_its_own_node_only(cluster: Cluster, session: dict[str, Any]) -> None:
    answer = await report(cluster, sample(session, now()), agent="worker2")
    assert answer.status_code == 403
    async with cluster.client() as guest:
        body = MetricsReport(name="worker1", samples=[]).model_dump(mode="json")
        assert (await guest.post(METRICS_PATH, json=body)).status_code == 401


async def test_who_may_see_the_session_sees_its_metrics(cluster: Cluster, session: dict[str, Any]) -> None:
    outsider, auditor = await cluster.user("eve"), await cluster.user("auditor", UserRole.AUDITOR)
    query = {"project": "team-a"}
    await refused(outsider.get(f"{V1}/sessions/a/metrics", params=query), 404)
    assert (await ok(auditor.get(f"{V1}/sessions/a/metrics", params=query)))["series"] == []


async def test_a_bad_time_is_refused(cluster: Cluster, session: dict[str, Any]) -> None:
    for since, until in (("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), ("2020-01-01T00:00:00Z", None)):
        query = {"project": "team-a", "since": since} | ({"until": until} if until else {})
        error = await refused(cluster.admin.get(f"{V1}/sessions/a/metrics", params=query), 422)
        assert error["where"] == "until"


async def test_the_use_of_a_session_that_has_ended(cluster: Cluster, session: dict[str, Any]) -> None:
    await report(cluster, sample(session, now()))
    await ok(cluster.admin.delete(f"{V1}/sessions/a", params={"project": "team-a"}))
    await cluster.settle()
    assert len((await metrics(cluster))["series"]) == 1


async def test_sessions_of_many_gpus_get_fewer_points_of_each(
    cluster: Cluster, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ALL_POINTS", 20)
    moment = now()
    await report(cluster, *(sample(session, moment, uuid=f"GPU-{n}") for n in range(10)))
    shown = await metrics(cluster)
    assert len(shown["series"]) == 10
    assert shown["step_s"] == 1801, "two points each for an hour"
