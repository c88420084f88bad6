"""User policies: what the sessions of one user may hold together."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.clock import now
from api.resources.user_policies import service
from api.resources.user_policies.service import Extra
from api.resources.users import service as users
from api.tables.projects import Project
from api.tables.sessions import Kind, Session, State
from common.errors import ConflictError
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body

pytestmark = pytest.mark.anyio


async def limited(cluster: Cluster, **limits: int) -> httpx.AsyncClient:
    """Give alice a policy of some limits, and a project; returns her client."""
    alice = await cluster.user("alice")
    await cluster.add_project("team-a", 1000, "alice")
    await ok(cluster.admin.post(f"{V1}/user-policies", json={"name": "students", **limits}))
    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"policy": "students"}))
    return alice


async def add_sessions(cluster: Cluster, count: int, state: State = State.RUNNING, **fields: Any) -> None:
    async with cluster.database.transaction() as db:
        alice = await users.get(db, "alice")
        project = Project.__table__
        project_id = (await db.execute(project.select().with_only_columns(project.c.id))).scalar_one()
        values = {"gpu_milli": 500, "cpu_milli": 1000, "memory_mib": 1024, "replicas": 1} | fields
        for number in range(count):
            session = Session(
                name=f"s-{state.lower()}-{number}",
                project_id=project_id,
                user_id=alice.id,
                user_name="alice",
                image="python",
                reference="python",
                kind=Kind.TRAINING,
                preemptible=False,
                args=[],
                environment={},
                mounts=[],
                state=state,
                since=now(),
                containers=[],
                services=[],
                **values,
            )
            db.add(session)


async def check(cluster: Cluster, **extra: int) -> None:
    async with cluster.database.transaction() as db:
        user = await service.hold(db, (await users.get(db, "alice")).id)
        await service.check(db, user, Extra(**extra))


async def test_the_51st_session_is_refused_with_the_policys_name(cluster: Cluster) -> None:
    await limited(cluster, max_sessions=50)
    await add_sessions(cluster, 49)
    await add_sessions(cluster, 5, State.TERMINATED)
    await check(cluster)
    await add_sessions(cluster, 1, State.PENDING)
    with pytest.raises(ConflictError, match="the policy students allows you 50 live sessions, and this would make 51"):
        await check(cluster)


@pytest.mark.parametrize(
    ("limit", "extra", "text"),
    [
        ({"max_gpu_milli": 4000}, {"gpu_milli": 2000}, "allows you 4 GPUs, and this would make 5"),
        ({"max_cpu_milli": 7000}, {"cpu_milli": 1500}, "allows you 7 CPU cores, and this would make 7.5"),
        ({"max_memory_mib": 6144}, {"memory_mib": 1}, "allows you 6144 MiB of memory, and this would make 6145"),
    ],
)
async def test_the_sums_count_every_container(
    cluster: Cluster, limit: dict[str, int], extra: dict[str, int], text: str
) -> None:
    await limited(cluster, **limit)
    await add_sessions(cluster, 2, replicas=3)
    with pytest.raises(ConflictError, match=text):
        await check(cluster, **extra)
    await check(cluster, **dict.fromkeys(extra, 0))


async def test_all_that_is_too_much_is_named_at_once(cluster: Cluster) -> None:
    await limited(cluster, max_sessions=0, max_gpu_milli=0)
    with pytest.raises(ConflictError) as raised:
        await check(cluster, gpu_milli=1000)
    assert [problem.where for problem in raised.value.problems] == ["name", "gpu_milli"]


async def test_without_a_policy_nothing_is_limited(cluster: Cluster) -> None:
    await limited(cluster, max_sessions=0)
    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"policy": None}))
    await check(cluster, gpu_milli=10**9)


async def test_a_changed_policy_holds_at_once(cluster: Cluster) -> None:
    await limited(cluster, max_sessions=0)
    changed = await ok(cluster.admin.patch(f"{V1}/user-policies/students", json={"max_sessions": None}))
    assert changed["max_sessions"] is None
    await check(cluster)


async def test_a_policy_that_somebody_has_stays(cluster: Cluster) -> None:
    await limited(cluster, max_sessions=5)
    assert "1 user" in (await refused(cluster.admin.delete(f"{V1}/user-policies/students"), 409))["reason"]
    await ok(cluster.admin.patch(f"{V1}/users/alice", json={"policy": None}))
    await ok(cluster.admin.delete(f"{V1}/user-policies/students"))
    assert await ok(cluster.admin.get(f"{V1}/user-policies")) == []


@pytest.mark.parametrize("value", [-1, 10**30, "x", 1.5])
async def test_bad_limits_are_named(cluster: Cluster, value: object) -> None:
    body = {"name": "students", "max_sessions": value}
    assert (await refused(cluster.admin.post(f"{V1}/user-policies", json=body), 422))["where"] == "max_sessions"


WITHOUT = {
    "where": "cpu_milli",
    "reason": "the policy students allows you 4 CPU cores, and without cpu_milli there is no limit",
    "hint": "write cpu_milli, or name a preset that does",
}


async def test_a_session_that_leaves_its_cores_out_has_those_of_its_node(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await ok(cluster.admin.post(f"{V1}/presets", json={"name": "no-cores", "gpu_milli": 500}))
    await ok(cluster.admin.post(f"{V1}/presets", json={"name": "four-cores", "gpu_milli": 500, "cpu_milli": 4000}))
    async with await limited(cluster, max_cpu_milli=4000) as alice:
        for asked in ({}, {"cpu_milli": 0}, {"preset": "no-cores"}, {"preset": "four-cores", "cpu_milli": 0}):
            assert await refused(alice.post(f"{V1}/sessions", json=body(**asked)), 409) == WITHOUT
        assert await refused(alice.post(f"{V1}/sessions/batch", json=body(count=2)), 409) == WITHOUT
        await ok(alice.post(f"{V1}/sessions", json=body(preset="four-cores")))


async def test_a_session_that_leaves_its_memory_out_has_what_the_policy_allows(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    async with await limited(cluster, max_memory_mib=8192) as alice:
        assert (await ok(alice.post(f"{V1}/sessions", json=body(gpu_milli=4000))))["memory_mib"] == 8192
        error = await refused(alice.post(f"{V1}/sessions", json=body("more")), 409)
        assert error["where"] == "memory_mib"
        assert error["reason"].endswith("8192 MiB of memory, and this would make 12288 MiB of memory")


async def test_what_was_submitted_before_a_policy_counts_as_what_it_has(cluster: Cluster) -> None:
    await limited(cluster, max_cpu_milli=4000, max_memory_mib=8192)
    await add_sessions(cluster, 1, cpu_milli=0)
    with pytest.raises(ConflictError, match="allows you 4 CPU cores, and one of your live sessions has no limit"):
        await check(cluster, cpu_milli=1000)
    await check(cluster, memory_mib=1024)
    await check(cluster, gpu_milli=1000)


async def test_a_share_that_is_to_be_raised_counts_already(cluster: Cluster) -> None:
    await limited(cluster, max_gpu_milli=1500)
    await add_sessions(cluster, 1, replicas=2, gpu_milli=500, resize_milli=600)
    await check(cluster, gpu_milli=300)
    with pytest.raises(ConflictError, match=r"allows you 1\.5 GPUs, and this would make 1\.6"):
        await check(cluster, gpu_milli=400)
    await add_sessions(cluster, 1, State.PENDING, gpu_milli=300, resize_milli=100)
    with pytest.raises(ConflictError, match=r"this would make 1\.51"):
        await check(cluster, gpu_milli=10)
