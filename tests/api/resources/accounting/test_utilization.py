"""How busy GPUs were that were held: what is known of it, of whom, and over time; what is not known is not 0."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from api.control.reconcilers import retention
from api.resources.accounting import hours
from api.resources.metrics import repository as samples
from api.tables.accounting import BusyHour, SiteHour
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.accounting.test_accounting import Ran, at, report, run

pytestmark = pytest.mark.anyio


async def sampled(cluster: Cluster, who: Ran, hour: float, busy: int | None, *gpus: str, minutes: int = 60) -> None:
    """Write what agents say of GPUs from a moment on, every 15 seconds, and pack it."""
    start = int(at(hour).timestamp())
    rows = [
        {"session_id": who.id, "rank": 0, "uuid": gpu, "at_s": start + 15 * n, "memory_mib": 1, "processes": 1}
        | {"busy_permille": busy}
        for n in range(4 * minutes)
        for gpu in gpus or ("GPU-0",)
    ]
    async with cluster.database.transaction() as db:
        await samples.add(db, rows)
        await samples.pack(db, start + 7200)


def known(answer: dict[str, Any]) -> dict[str, tuple[float, float]]:
    rows = [*answer["rows"], answer["total"]]
    return {row["name"]: (row["covered_gpu_seconds"] / 3600, row["busy_gpu_seconds"] / 3600) for row in rows}


async def test_a_share_that_is_always_busy_is_wholly_used(cluster: Cluster) -> None:
    half = Ran("alice", "team-a", 500)
    await run(cluster, half, (1, 2))
    await sampled(cluster, half, 1, 500)
    assert known(await report(cluster.admin)) == {"alice": (0.5, 0.5), "total": (0.5, 0.5)}


async def test_of_several_gpus_the_mean_counts(cluster: Cluster) -> None:
    two = Ran("alice", "team-a", 2000)
    await run(cluster, two, (1, 2))
    await sampled(cluster, two, 1, 1000, "GPU-0")
    await sampled(cluster, two, 1, 0, "GPU-1")
    assert known(await report(cluster.admin, "project")) == {"team-a": (2, 1), "total": (2, 1)}


async def test_where_no_sample_tells_it_is_unknown_and_not_idle(cluster: Cluster) -> None:
    told, silent, cannot = (Ran(name, "team-a", 1000) for name in ("alice", "bobby", "carol"))
    for who in (told, silent, cannot):
        await run(cluster, who, (1, 3))
    await sampled(cluster, told, 1, 0)
    await sampled(cluster, cannot, 1, None)
    assert known(await report(cluster.admin)) == {
        "alice": (1, 0),
        "bobby": (0, 0),
        "carol": (0, 0),
        "total": (1, 0),
    }


async def test_only_the_part_within_the_period_and_the_spans_counts(cluster: Cluster) -> None:
    who = Ran("alice", "team-a", 1000)
    await run(cluster, who, (1.5, 2.25))
    await sampled(cluster, who, 1.5, 800, minutes=30)
    await sampled(cluster, who, 2, 400, minutes=15)
    assert known(await report(cluster.admin))["alice"] == pytest.approx((0.75, 0.5))
    assert known(await report(cluster.admin, start=2))["alice"] == pytest.approx((0.25, 0.1))


async def test_what_was_sampled_for_half_of_the_time_is_known_for_half(cluster: Cluster) -> None:
    who = Ran("alice", "team-a", 1000)
    await run(cluster, who, (1, 2))
    await sampled(cluster, who, 1, 1000, minutes=30)
    assert known(await report(cluster.admin))["alice"] == (0.5, 0.5)


async def test_nobody_was_busier_than_what_was_held(cluster: Cluster) -> None:
    """A share may have more of its GPU while nobody else wants that."""
    who = Ran("alice", "team-a", 500)
    await run(cluster, who, (1, 2))
    await sampled(cluster, who, 1, 900)
    assert known(await report(cluster.admin))["alice"] == (0.5, 0.5)


async def test_late_samples_count_once(cluster: Cluster) -> None:
    who = Ran("alice", "team-a", 1000)
    await run(cluster, who, (1, 2))
    for minutes in (30, 60, 60):
        await sampled(cluster, who, 1, 500, minutes=minutes)
    assert known(await report(cluster.admin))["alice"] == (1, 0.5)


async def test_what_is_known_outlives_the_samples(cluster: Cluster) -> None:
    who = Ran("alice", "team-a", 1000)
    await run(cluster, who, (1, 2))
    await sampled(cluster, who, 1, 500)
    async with cluster.database.transaction() as db:
        while await samples.forget(db, int(at(10).timestamp())):
            pass
    assert known(await report(cluster.admin))["alice"] == (1, 0.5)


async def utilization(cluster: Cluster, start: float, end: float, points: int = 100) -> dict[str, Any]:
    query = {"starts_at": at(start).isoformat(), "ends_at": at(end).isoformat(), "points": str(points)}
    return dict(await ok(cluster.admin.get(f"{V1}/accounting/utilization", params=query)))


async def test_gpus_in_all_held_and_busy_over_time(cluster: Cluster) -> None:
    who = Ran("alice", "team-a", 2000)
    await run(cluster, who, (1, 3))
    await run(cluster, Ran("bobby", "team-b", 1000), (1, 1.5))
    await sampled(cluster, who, 1, 250, "GPU-0", "GPU-1")
    async with cluster.database.transaction() as db:
        for hour, milli in ((1, 4000), (2, 8000)):
            db.add(SiteHour(hour=int(at(hour).timestamp()) // 3600, gpu_milli=milli))
    steps = (await utilization(cluster, 0.5, 3))["steps"]
    names = ("gpu_milli", "held_milli", "covered_milli", "busy_milli")
    assert [tuple(step[name] for name in names) for step in steps] == [
        (None, 0, 0, 0),
        (4000, 2500, 2000, 500),
        (8000, 2000, 0, 0),
    ]
    (whole,) = (await utilization(cluster, 1, 3, points=1))["steps"]
    assert tuple(whole[name] for name in names) == (6000, 2250, 1000, 250)
    await refused(
        cluster.admin.get(
            f"{V1}/accounting/utilization", params={"starts_at": at(9).isoformat(), "ends_at": at(1).isoformat()}
        ),
        422,
    )


async def test_the_leader_notes_the_gpus_of_each_hour_and_forgets_old_ones(cluster: Cluster) -> None:
    await cluster.add_node(gpus=3)
    moment = datetime.fromisoformat((await utilization(cluster, 0, 1))["ends_at"])
    later, old = moment + timedelta(hours=1), uuid4()
    for each in (moment, moment + timedelta(minutes=10), later):
        await retention.apply(cluster.database, cluster.settings, each)
    async with cluster.database.transaction() as db:
        db.add(BusyHour(session_id=old, hour=1, series=1, samples=1, busy_permille=1))
        assert [row.gpu_milli for row in await hours.gpus_over_time(db, moment, later)] == [3000, 3000]
    keep = timedelta(seconds=cluster.settings.accounting_detail_keep_s)
    await retention.apply(cluster.database, cluster.settings, later + keep)
    async with cluster.database.reading() as db:
        assert [row.gpu_milli for row in await hours.gpus_over_time(db, moment, later)] == [3000]
        assert await db.get(BusyHour, (old, 1)) is None
