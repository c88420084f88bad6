"""Raises of shares: they go no further than domain and project may, and take nothing of what is kept for who waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update

from api.clock import now
from api.resources.sessions import service as sessions
from api.resources.sessions.raises import Room
from api.scheduler.claims import Claim, Standing
from api.scheduler.snapshot import Workload
from api.tables.sessions import Session, State
from common.errors import ConflictError
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

OTHER, AGAIN = "a session of another project", "ask again when that one runs"
ELSEWHERE = f"{AGAIN}, or submit it again to let it run elsewhere"


async def prepare(cluster: Cluster, gpus: int, **domain: Any) -> None:
    await cluster.add_node("worker1", gpus)
    await cluster.add_image()
    if domain:
        await ok(cluster.admin.post(f"{V1}/domains", json={"name": "lab", "shares": True, **domain}))


async def add_project(cluster: Cluster, name: str, quota_milli: int, **more: Any) -> None:
    body = {"name": name, "quota_milli": quota_milli, "period": {"ends_at": None}, **more}
    await ok(cluster.admin.post(f"{V1}/projects", json=body))


async def resize(cluster: Cluster, name: str, milli: int, project: str = "team-a", *, status: int = 200) -> str:
    answer = cluster.admin.patch(f"{V1}/sessions/{name}", params={"project": project}, json={"gpu_milli": milli})
    if status == 200:
        await ok(answer)
        await cluster.settle()
        return ""
    return str((await refused(answer, status))["reason"])


async def wait_for_long(cluster: Cluster, name: str) -> None:
    """Let a session wait already for so long that room is kept for it, and the scheduler notice that."""
    async with cluster.database.transaction() as db:
        long_ago = now() - timedelta(minutes=10)
        await db.execute(update(Session).where(Session.name == name).values(created_at=long_ago))
    await cluster.settle()


async def of(cluster: Cluster, name: str, project: str = "team-a") -> tuple[int, int | None, str]:
    found = await cluster.session(name, project)
    return found["held_milli"], found["resize_milli"], found["reason"]


async def test_a_raise_stays_within_the_limit_of_the_domain(cluster: Cluster) -> None:
    """What its other projects hold counts; of those elsewhere nothing does."""
    await prepare(cluster, 4, quota_milli=1000, limit_milli=1500)
    await add_project(cluster, "team-a", 500, domain="lab")
    await add_project(cluster, "team-b", 500, domain="lab")
    await add_project(cluster, "other", 1000)
    for name, milli, project in (("a", 600, "team-a"), ("b", 700, "team-b"), ("c", 600, "other")):
        await cluster.submit(name, milli, project)
    await cluster.settle()
    reason = await resize(cluster, "a", 900, status=409)
    assert reason == "the projects of lab hold 1.3 of the 1.5 GPU that it may have, and 0.3 more is asked for"
    await resize(cluster, "a", 800)
    await resize(cluster, "c", 900, "other")
    assert [(await of(cluster, *each))[0] for each in (("a",), ("b", "team-b"), ("c", "other"))] == [800, 700, 900]


async def test_raises_at_once_stay_within_the_limit_of_the_domain(cluster: Cluster) -> None:
    """Each would do alone: the leader looks once more."""
    await prepare(cluster, 4, quota_milli=1000, limit_milli=1500)
    await add_project(cluster, "team-a", 1000, domain="lab")
    for name in "ab":
        await cluster.submit(name, 600)
    await cluster.settle()
    for name in "ab":
        answer = cluster.admin.patch(f"{V1}/sessions/{name}", params={"project": "team-a"}, json={"gpu_milli": 900})
        await ok(answer)
    await cluster.settle()
    raised, kept = sorted([await of(cluster, name) for name in "ab"], key=lambda item: -item[0])
    assert (raised, kept[:2]) == ((900, None, ""), (600, None))
    assert kept[2].startswith("its share stays 0.6 GPU: the projects of lab hold 1.5 of the 1.5 GPU")


@pytest.mark.parametrize("private", [False, True])
async def test_a_raise_takes_nothing_of_a_quota_that_is_kept(cluster: Cluster, *, private: bool) -> None:
    """`large` waits for what is left of the hard quota and for what `soon` gives back; `a` would stay."""
    await prepare(cluster, 4)
    await add_project(cluster, "team-a", 2000, over_quota=False)
    await cluster.submit("a", 100, preemptible=False)
    await cluster.submit("soon", 1000, preemptible=False, limit_s=3600)
    await cluster.settle()
    await cluster.submit("large", 1800, preemptible=False, access="private" if private else "project")
    await wait_for_long(cluster, "large")
    await resize(cluster, "a", 400)
    whom = "a private session of team-a" if private else "large of team-a"
    assert await of(cluster, "a") == (
        100,
        None,
        f"its share stays 0.1 GPU: team-a keeps some of what it may have for {whom}, served first; {AGAIN}",
    )
    await resize(cluster, "a", 200)
    assert (await of(cluster, "a"))[0] == 200, "that much is left beside it"
    await ok(cluster.admin.delete(f"{V1}/sessions/large", params={"project": "team-a"}))
    await resize(cluster, "a", 400)
    assert (await of(cluster, "a"))[0] == 400, "nobody waits for it any more"


async def test_a_raise_takes_nothing_of_a_limit_that_is_kept(cluster: Cluster) -> None:
    """The same of a limit, for work that can be reclaimed."""
    await prepare(cluster, 4)
    await add_project(cluster, "team-a", 2000, limit_milli=2000)
    await cluster.submit("a", 100)
    await cluster.submit("soon", 1000, limit_s=3600)
    await cluster.settle()
    await cluster.submit("large", 1800)
    await wait_for_long(cluster, "large")
    assert (await cluster.states())["large"] == "PENDING"
    await resize(cluster, "a", 400)
    milli, _, reason = await of(cluster, "a")
    assert (milli, "team-a keeps some of what it may have for large of team-a" in reason) == (100, True)


async def test_the_size_of_one_that_waits_elsewhere_is_not_told(cluster: Cluster) -> None:
    await prepare(cluster, 1)
    await add_project(cluster, "team-a", 1000)
    await add_project(cluster, "team-b", 1000)
    await cluster.submit("a", 200)
    await cluster.settle()
    await cluster.submit("secret", 900, "team-b")
    await wait_for_long(cluster, "secret")
    await resize(cluster, "a", 400)
    assert await of(cluster, "a") == (
        200,
        None,
        f"its share stays 0.2 GPU: room on GPU-worker1-0 of worker1 is kept for {OTHER}, served first; {ELSEWHERE}",
    )


async def test_a_raise_leaves_room_in_the_domain_for_who_is_about_to_start(cluster: Cluster) -> None:
    """Others are being stopped for it; what its size is stays untold, as the project is another one."""
    await prepare(cluster, 4, quota_milli=1000, limit_milli=1500)
    await add_project(cluster, "team-a", 500, domain="lab")
    await add_project(cluster, "team-b", 500, domain="lab")
    await cluster.submit("a", 600)
    await cluster.settle()
    wanted = Workload(str(uuid4()), "team-b", 0, gpu_milli=800)
    async with cluster.database.reading() as db:
        (session,) = await sessions.in_states(db, [State.RUNNING])
        room = await Room.of(db, session)
        room.check(700, [Claim(wanted, Standing.NOMINATED)])
        with pytest.raises(ConflictError) as caught:
            room.check(800, [Claim(wanted, Standing.NOMINATED)])
        room.check(800, [Claim(wanted, Standing.SOFT)])
    assert caught.value.problems[0].reason == f"team-a keeps some of what it may have for {OTHER}, served first"
