"""The share of a running session is raised and lowered, and agents and database come to agree whatever breaks off."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from api.auth.policy import UserRole
from api.clock import now
from api.control.loop import Loop
from api.control.reconcilers import resizes
from api.control.reconcilers.failures import Failures
from api.engine.base import UnreachableError
from api.resources.sessions import service as sessions
from api.tables.accounting import Span
from api.tables.nodes import Node, NodeState
from api.tables.sessions import Session, State
from common.errors import ConflictError
from common.gpu.share import GpuShare
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import try_again

pytestmark = pytest.mark.anyio


async def resize(cluster: Cluster, milli: int, name: str = "a", status: int = 200) -> dict[str, Any]:
    params = {"project": "team-a"}
    answer = cluster.admin.patch(f"{V1}/sessions/{name}", params=params, json={"gpu_milli": milli})
    return dict(await (ok(answer) if status == 200 else refused(answer, status)))


async def prepare(cluster: Cluster, *shares: int, quota: int = 4000, gpus: int = 1) -> None:
    """Let sessions `a`, `b` ... run with these shares."""
    await cluster.add_node("worker1", gpus)
    await cluster.add_image()
    await cluster.add_project("team-a", quota)
    for name, milli in zip("abcdefgh", shares, strict=False):
        # a resize leaves the memory of a session as it is
        await cluster.submit(name, milli, memory_mib=1024)
    await cluster.settle()


def told(cluster: Cluster, session: dict[str, Any]) -> list[int]:
    """What the agent holds a session to."""
    return [gpu.milli for gpu in cluster.engine.containers[cluster.container(session)].gpus]


@pytest.mark.parametrize("milli", [250, 750])
async def test_a_share_is_changed_on_the_gpu_and_in_the_books(cluster: Cluster, milli: int) -> None:
    await prepare(cluster, 500)
    asked = await resize(cluster, milli)
    assert asked["resize_milli"] == milli
    assert asked["gpu_milli"] == 500, "it is not done yet"
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["held_milli"], session["resize_milli"]) == (milli, milli, None)
    assert session["gpus"][0]["milli"] == milli
    assert session["gpus"][0]["memory_mib"] == 16384 * milli // 1000
    assert told(cluster, session) == [milli]
    project = await ok(cluster.admin.get(f"{V1}/projects/team-a"))
    assert project["used_milli"] == milli


async def test_only_the_part_changes_beside_whole_gpus(cluster: Cluster) -> None:
    await prepare(cluster, 2500, gpus=3)
    await resize(cluster, 2250)
    await cluster.settle()
    session = await cluster.session("a")
    assert sorted(told(cluster, session)) == [250, 1000, 1000]
    assert sorted(gpu["milli"] for gpu in session["gpus"]) == [250, 1000, 1000]


async def test_what_is_given_back_goes_to_who_waits(cluster: Cluster) -> None:
    await prepare(cluster, 500, 500, 250)
    assert (await cluster.states())["c"] == "PENDING"
    await resize(cluster, 250)
    await cluster.settle()
    assert (await cluster.states())["c"] == "RUNNING"


async def test_a_raise_takes_the_room_before_anybody_else_gets_it(cluster: Cluster) -> None:
    await prepare(cluster, 250, 500)
    await resize(cluster, 500)
    await cluster.submit("late", 250, memory_mib=1024)
    await cluster.settle()
    assert (await cluster.session("a"))["gpu_milli"] == 500
    assert (await cluster.states())["late"] == "PENDING"


async def test_a_lowered_share_is_given_away_only_when_the_agent_has_taken_it(cluster: Cluster) -> None:
    await prepare(cluster, 500, 500)
    cluster.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await resize(cluster, 250)
    await cluster.submit("late", 250, memory_mib=1024)
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["resize_milli"], session["gpus"][0]["milli"]) == (500, 250, 500)
    assert (await cluster.states())["late"] == "PENDING"
    cluster.engine.failure = None
    await try_again(cluster)
    assert told(cluster, session) == [250]
    assert (await cluster.states())["late"] == "RUNNING"


@pytest.mark.parametrize("milli", [250, 750])
async def test_an_api_that_was_killed_finishes_what_it_began(cluster: Cluster, milli: int) -> None:
    """It had told the agent and not written that down: the same is asked for again."""
    await prepare(cluster, 500)
    await resize(cluster, milli)
    await resizes.take_space(cluster.database, (), Failures())
    before = await cluster.session("a")
    key = cluster.container(before)
    gpu = cluster.engine.containers[key].gpus[0]
    cluster.change_container(before, gpus=[GpuShare(uuid=gpu.uuid, index=gpu.index, milli=milli)])
    await try_again(cluster)
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["resize_milli"], told(cluster, session)) == (milli, None, [milli])


async def test_an_agent_that_has_lost_the_new_share_gets_it_again(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    session = await cluster.session("a")
    gpu = cluster.engine.containers[cluster.container(session)].gpus[0]
    cluster.change_container(session, gpus=[GpuShare(uuid=gpu.uuid, index=gpu.index, milli=900)])
    await cluster.heartbeat("worker1", 1)
    await cluster.settle()
    assert told(cluster, session) == [500]
    assert (await cluster.session("a"))["resize_milli"] is None


@pytest.mark.parametrize("milli", [250, 750])
async def test_what_an_agent_refuses_stays_as_it_was(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, milli: int
) -> None:
    await prepare(cluster, 500)
    take = cluster.engine.resize

    async def choosy(agent: Any, container_id: str, shares: Any) -> Any:
        if shares.gpus[0].milli == milli:
            raise ConflictError("worker1 cannot change shares", hint="submit it again")
        return await take(agent, container_id, shares)

    monkeypatch.setattr(cluster.engine, "resize", choosy)
    await resize(cluster, milli)
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["held_milli"], session["resize_milli"]) == (500, 500, None)
    assert session["gpus"][0]["milli"] == 500
    assert told(cluster, session) == [500]
    assert (session["reason"], session["cause"]) == (
        "its share stays 0.5 GPU: worker1 cannot change shares",
        "resize",
    )
    monkeypatch.undo()
    await resize(cluster, milli)
    await cluster.settle()
    assert (await cluster.session("a"))["reason"] == "", "what went well in the end is no trouble any more"


async def test_room_that_went_away_meanwhile(cluster: Cluster) -> None:
    await prepare(cluster, 250, 250)
    await resize(cluster, 750, "a")
    await resize(cluster, 750, "b")
    await cluster.settle()
    shares = sorted([(await cluster.session(name))["gpu_milli"] for name in "ab"])
    assert shares == [250, 750]
    (kept,) = [item for item in [await cluster.session(name) for name in "ab"] if item["gpu_milli"] == 250]
    assert kept["reason"].startswith("its share stays 0.25 GPU: 0 GPU is free on GPU-worker1-0 of worker1")


async def wait_for_long(cluster: Cluster, name: str) -> None:
    """Let a session wait already for so long that places are kept for it, and the scheduler notice that."""
    async with cluster.database.transaction() as db:
        long_ago = now() - timedelta(days=1)
        await db.execute(update(Session).where(Session.name == name).values(created_at=long_ago))
    await cluster.settle()


async def test_a_raise_does_not_take_what_is_reserved_for_who_waits(cluster: Cluster) -> None:
    """`large` waits for the whole GPU: until it runs, what is free of that is for nobody else."""
    await prepare(cluster, 250)
    await cluster.submit("large", 1000)
    await wait_for_long(cluster, "large")
    await resize(cluster, 500)
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["resize_milli"], told(cluster, session)) == (250, None, [250])
    assert session["cause"] == "resize"
    assert session["reason"] == (
        "its share stays 0.25 GPU: room on GPU-worker1-0 of worker1 is kept for large of team-a, served first; "
        "ask again when that one runs, or submit it again to let it run elsewhere"
    )
    await ok(cluster.admin.delete(f"{V1}/sessions/large", params={"project": "team-a"}))
    await resize(cluster, 500)
    await cluster.settle()
    assert (await cluster.session("a"))["gpu_milli"] == 500, "nobody waits for it any more"


async def test_a_raise_on_another_gpu_than_the_kept_one_is_granted(cluster: Cluster) -> None:
    await prepare(cluster, 500, 600, gpus=2)
    await cluster.submit("large", 1000)
    await wait_for_long(cluster, "large")
    await resize(cluster, 600, "a")
    await resize(cluster, 700, "b")
    await cluster.settle()
    assert [(await cluster.session(name))["gpu_milli"] for name in "ab"] == [500, 700]


async def test_a_new_leader_raises_no_share_before_it_knows_what_is_kept(cluster: Cluster) -> None:
    await prepare(cluster, 250)
    await cluster.submit("large", 1000)
    await wait_for_long(cluster, "large")
    await resize(cluster, 500)
    cluster.manager.loop = Loop(cluster.database, cluster.settings)
    await cluster.settle()
    assert (await cluster.session("a"))["resize_milli"] == 500, "it has not been looked at"
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["resize_milli"]) == (250, None)


async def test_accounting_counts_each_share_for_its_time(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    await resize(cluster, 750)
    await cluster.settle()
    async with cluster.database.reading() as db:
        session = (await sessions.in_states(db, list(State)))[0]
        spans = await _spans(db, session.id)
    assert [milli for milli, _ in spans] == [500, 750]
    assert spans[0][1] is not None
    assert spans[1][1] is None


async def _spans(db: Any, session_id: Any) -> list[tuple[int, Any]]:
    query = select(Span.gpu_milli, Span.ended_at).where(Span.session_id == session_id).order_by(Span.started_at)
    return [(row.gpu_milli, row.ended_at) for row in await db.execute(query)]


REFUSED = {
    "too fine": (330, 422, "a share of 0.33 GPU is finer than the granularity allows (steps of 0.05 GPU)"),
    "a whole GPU": (1000, 422, "1 GPU would need other GPUs than those that the session has"),
    "more than one": (1500, 422, "1.5 GPU would need other GPUs than those that the session has"),
    "nothing": (0, 422, "a share of 0 GPU is not above 0"),
    "no room on the GPU": (700, 409, "0.1 GPU is free on GPU-worker1-0 of worker1, and 0.2 more is asked for"),
}


@pytest.mark.parametrize(("milli", "status", "reason"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_done_is_refused_with_a_hint(
    cluster: Cluster, milli: int, status: int, reason: str
) -> None:
    await prepare(cluster, 500, 400)
    error = await resize(cluster, milli, status=status)
    assert error["reason"] == reason
    assert error["where"] == "gpu_milli"
    assert error["hint"]


async def test_a_quota_that_is_full(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    body = {"quota_milli": 500, "over_quota": False}
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json=body))
    error = await resize(cluster, 600, status=409)
    assert error["reason"] == "team-a holds 0.5 of its 0.5 GPU, and 0.1 more is asked for"


async def test_a_limit_that_is_reached_is_called_one(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 250, "limit_milli": 500}))
    error = await resize(cluster, 600, status=409)
    assert error["reason"] == "team-a holds 0.5 of its 0.5 GPU, and 0.1 more is asked for"
    assert error["hint"] == "stop one of its sessions, or ask for a larger limit"


@pytest.mark.parametrize("over_quota", [True, False])
async def test_work_that_cannot_be_taken_back_grows_as_far_as_the_quota(cluster: Cluster, over_quota: bool) -> None:
    """The last milli-GPU of the quota is its own, whatever others hold beyond theirs; the first beyond is not."""
    await prepare(cluster, quota=750)
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"over_quota": over_quota}))
    await cluster.submit("a", 500, preemptible=False)
    await cluster.settle()
    error = await resize(cluster, 800, status=409)
    kind = " by work that cannot be reclaimed" if over_quota else ""
    assert error["reason"] == f"team-a holds 0.5 of its 0.75 GPU{kind}, and 0.3 more is asked for"
    await resize(cluster, 750)
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["reason"], told(cluster, session)) == (750, "", [750])


async def test_work_that_can_be_taken_back_grows_beyond_the_quota(cluster: Cluster) -> None:
    await prepare(cluster, quota=750)
    await cluster.submit("a", 700, preemptible=False)
    await cluster.submit("b", 200)
    await cluster.settle()
    await resize(cluster, 300, "b")
    await cluster.settle()
    assert [(await cluster.session(name))["gpu_milli"] for name in "ab"] == [700, 300]


async def test_whole_gpus_and_what_waits_are_not_resized(cluster: Cluster) -> None:
    await prepare(cluster, 1000, 500)
    assert (await resize(cluster, 500, "a", 409))["reason"] == "session a has no part of a GPU"
    assert (await resize(cluster, 250, "b", 409))["reason"] == "session b is PENDING"


async def test_one_change_at_a_time(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    await resize(cluster, 250)
    assert (await resize(cluster, 250))["resize_milli"] == 250, "the same again is no other wish"
    error = await resize(cluster, 300, status=409)
    assert error["reason"] == "the share of a is being changed to 0.25 GPU"
    assert error["hint"] == "try again when that is done, or ask for 0.5 GPU as before"


@pytest.mark.parametrize("milli", [250, 750])
async def test_a_change_that_is_not_done_is_withdrawn(cluster: Cluster, milli: int) -> None:
    await prepare(cluster, 500)
    cluster.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await resize(cluster, milli)
    await cluster.settle()
    assert (await cluster.session("a"))["resize_milli"] == milli
    assert (await resize(cluster, 500))["resize_milli"] == 500
    await cluster.settle()
    session = await cluster.session("a")
    assert session["held_milli"] == max(500, milli), "the agent may have taken it: the room is not given away yet"
    cluster.engine.failure = None
    await try_again(cluster)
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["held_milli"], session["resize_milli"]) == (500, 500, None)
    assert told(cluster, session) == [500]


async def test_a_raise_waits_for_a_node_that_is_lost(cluster: Cluster) -> None:
    """What ran beside it may come back with the node: its room is not known until then."""
    await prepare(cluster, 500, 250)
    await resize(cluster, 750)
    async with cluster.database.transaction() as db:
        await db.execute(update(Node).values(state=NodeState.LOST))
    await resizes.take_space(cluster.database, (), Failures())
    session = await cluster.session("a")
    assert (session["gpu_milli"], session["resize_milli"], session["reason"]) == (500, 750, "")
    await cluster.heartbeat("worker1", 1)
    await cluster.settle()
    assert (await cluster.session("a"))["gpu_milli"] == 750


async def test_a_request_names_one_change(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    for body in ({}, {"priority": 10, "gpu_milli": 250}):
        answer = cluster.admin.patch(f"{V1}/sessions/a", params={"project": "team-a"}, json=body)
        assert "priority" in (await refused(answer, 422))["reason"]


async def test_members_resize_their_own_sessions_only(cluster: Cluster) -> None:
    ada, bob = await cluster.user("ada"), await cluster.user("bob")
    auditor = await cluster.user("auditor", UserRole.AUDITOR)
    await cluster.add_node("worker1", 1)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000, "ada", "bob")
    body = {"name": "a", "project": "team-a", "image": "python", "gpu_milli": 500}
    await ok(ada.post(f"{V1}/sessions", json=body))
    await cluster.settle()
    query, change = {"project": "team-a"}, {"gpu_milli": 250}
    for other in (bob, auditor):
        await refused(other.patch(f"{V1}/sessions/a", params=query, json=change), 403)
    await ok(ada.patch(f"{V1}/sessions/a", params=query, json=change))


async def test_a_session_that_ends_meanwhile_only_ends(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    await resize(cluster, 250)
    await ok(cluster.admin.delete(f"{V1}/sessions/a", params={"project": "team-a"}))
    await cluster.settle()
    session = await cluster.session("a")
    assert (session["state"], session["resize_milli"]) == ("TERMINATED", None)


async def test_it_starts_again_with_the_share_that_was_asked_for(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    cluster.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await resize(cluster, 250)
    await cluster.settle()
    async with cluster.database.transaction() as db:
        session = (await sessions.in_states(db, [State.RUNNING]))[0]
        assert await sessions.requeue(db, session, "its node was lost")
    waiting = await cluster.session("a")
    assert (waiting["gpu_milli"], waiting["held_milli"], waiting["resize_milli"]) == (250, 0, None)


async def test_what_an_unknown_container_holds_of_a_gpu_is_no_room_for_a_raise(cluster: Cluster) -> None:
    await prepare(cluster, 500)
    async with cluster.database.transaction() as db:
        await db.execute(update(Node).values(orphaned_milli={"GPU-worker1-0": 400}))
    answer = await resize(cluster, 750, status=409)
    assert "0.1 GPU is free on GPU-worker1-0 of worker1" in str(answer)
    await resize(cluster, 600)
