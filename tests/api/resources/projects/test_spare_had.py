"""What projects had of what is spare: counted by the clock, told to the scheduler where that counts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from api.clock import Clock, now
from api.control.loop import Loop
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.timed import TimedReconciler
from api.resources.projects import service, spare_had
from tests.api.cluster import V1, Cluster, SlowClock, ok
from tests.api.steps import set_clock

pytestmark = pytest.mark.anyio
HALF = 3600


async def had(cluster: Cluster, name: str, at: datetime) -> float:
    async with cluster.database.transaction() as db:
        await spare_had.count(db, at, HALF)
    async with cluster.database.reading() as db:
        return round((await service.named(db, [name], "project"))[0].had_milli, 3)


async def test_what_is_held_beyond_the_quota_is_averaged_and_forgotten_by_halves(ready: Cluster) -> None:
    await ready.add_project("team-b", 1000)
    await ready.submit("guest", project="team-b", gpu_milli=3000)
    await ready.settle()
    start = now()
    assert await had(ready, "team-b", start) == 0, "nobody knows how long it had that"
    assert await had(ready, "team-b", start + timedelta(seconds=HALF)) == 1000
    assert await had(ready, "team-b", start + timedelta(seconds=2 * HALF)) == 1500
    assert await had(ready, "team-b", start) == 1500, "a clock that is set back changes nothing"
    await ok(ready.admin.delete(f"{V1}/sessions/guest", params={"project": "team-b"}))
    await ready.settle()
    assert await had(ready, "team-b", start + timedelta(seconds=HALF)) == 750
    assert await had(ready, "team-a", start + timedelta(seconds=HALF)) == 0
    project = await ok(ready.admin.get(f"{V1}/projects/team-b"))
    assert project["had_milli"] == 750


async def test_the_scheduler_is_told_where_it_counts(ready: Cluster) -> None:
    await ready.submit("large", gpu_milli=3000)
    await ready.settle()
    start = now()
    await had(ready, "team-a", start)
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1000}))
    assert await had(ready, "team-a", start + timedelta(seconds=HALF)) == 1000
    for half_life_s, told in ((0, 0), (HALF, 1000)):
        loop = Loop(ready.database, ready.settings.model_copy(update={"spare_half_life_s": half_life_s}))
        _, snapshot = await loop.apart()
        assert [each.had_milli for each in snapshot.projects if each.name == "team-a"] == [told]


async def test_it_is_counted_once_a_minute_where_there_is_a_half_life(ready: Cluster) -> None:
    await TimedReconciler(ready.database, ready.settings, Clock(), Failures()).apply()
    assert (await counted_at(ready)) is None
    settings = ready.settings.model_copy(update={"spare_half_life_s": HALF})
    reconciler = TimedReconciler(ready.database, settings, Clock(), Failures())
    await reconciler.apply()
    first = await counted_at(ready)
    assert first is not None
    await reconciler.apply()
    assert await counted_at(ready) == first, "not again at once"


@pytest.mark.parametrize("step_s", [HALF, -HALF])
async def test_a_step_of_the_clock_is_no_time_that_passes(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """Neither is what was counted before a step counted again, nor is a step counted as what was held."""
    settings = ready.settings.model_copy(update={"spare_half_life_s": HALF})
    clock = SlowClock()
    reconciler = TimedReconciler(ready.database, settings, clock, Failures())
    await reconciler.apply()
    first = await counted_at(ready)
    assert first is not None
    set_clock(monkeypatch, step_s)
    clock.passed += 1
    await reconciler.apply()
    moved = await counted_at(ready)
    assert moved is not None
    assert abs((moved - first).total_seconds() - step_s) < 1


async def counted_at(cluster: Cluster) -> datetime | None:
    async with cluster.database.reading() as db:
        return (await service.named(db, ["team-a"], "project"))[0].had_at
