"""Sessions larger than what their project may ever hold: refused at once, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body, run

pytestmark = pytest.mark.anyio


async def capped(cluster: Cluster, *, over_quota: bool = False) -> None:
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1000, "over_quota": over_quota}))


@pytest.mark.parametrize(
    ("asked", "milli"),
    [({"gpu_milli": 1500}, "1.5"), ({"gpu_milli": 500, "replicas": 3}, "1.5")],
    ids=["one container", "the containers of a gang together"],
)
async def test_more_than_the_hard_cap(ready: Cluster, asked: dict[str, Any], milli: str) -> None:
    await capped(ready)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body(**asked)), 422)
    assert error["reason"] == f"team-a may hold 1 GPU, and {milli} GPU are asked for"
    assert error["where"] == "gpu_milli"
    assert error["hint"] == "ask for fewer, or for a larger quota"


@pytest.mark.parametrize(
    ("over_quota", "hint"),
    [
        (True, "submit it as preemptible, or ask an administrator for a quota"),
        (False, "ask an administrator for a quota, or submit work that needs no GPU"),
    ],
)
async def test_without_a_quota_the_hint_asks_for_no_fewer_than_none(
    ready: Cluster, over_quota: bool, hint: str
) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 0, "over_quota": over_quota}))
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body(gpu_milli=500, preemptible=False)), 422)
    assert error["hint"] == hint


async def test_what_just_fits_is_taken_however_many_there_are(ready: Cluster) -> None:
    await capped(ready)
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body(gpu_milli=1000, count=2)))
    await ok(ready.admin.post(f"{V1}/sessions", json=body("none", gpu_milli=0, cpu_milli=1000)))


async def test_with_over_quota_only_what_can_be_reclaimed_may_be_larger(ready: Cluster) -> None:
    await capped(ready, over_quota=True)
    await ok(ready.admin.post(f"{V1}/sessions", json=body(gpu_milli=1500)))
    request = body("desk", gpu_milli=1500, interactive=True)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=request), 422)
    assert error["reason"] == ("team-a may hold 1 GPU by work that cannot be reclaimed, and 1.5 GPU are asked for")


async def test_more_than_the_limit_is_refused_and_the_limit_itself_is_not(ready: Cluster) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1000, "limit_milli": 1500}))
    await ok(ready.admin.post(f"{V1}/sessions", json=body(gpu_milli=1500)))
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body("more", gpu_milli=1600)), 422)
    assert error["reason"] == "team-a may hold 1.5 GPU, and 1.6 GPU are asked for"
    assert error["hint"] == "ask for fewer, or for a larger limit"
    desk = body("desk", gpu_milli=1500, interactive=True)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=desk), 422)
    assert error["reason"] == "team-a may hold 1 GPU by work that cannot be reclaimed, and 1.5 GPU are asked for"


async def test_a_share_is_not_raised_beyond_the_limit(ready: Cluster) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 500, "limit_milli": 1500}))
    await run(ready, gpu_milli=500, replicas=2)
    change = ready.admin.patch(f"{V1}/sessions/demo", params={"project": "team-a"}, json={"gpu_milli": 800})
    error = await refused(change, 409)
    assert error["reason"] == "team-a holds 1 of its 1.5 GPU, and 0.6 more is asked for"


async def test_a_share_is_not_raised_beyond_the_hard_cap(ready: Cluster) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 1500, "over_quota": False}))
    await run(ready, gpu_milli=500, replicas=2)
    change = ready.admin.patch(f"{V1}/sessions/demo", params={"project": "team-a"}, json={"gpu_milli": 800})
    error = await refused(change, 409)
    assert error["reason"] == "team-a holds 1 of its 1.5 GPU, and 0.6 more is asked for"
