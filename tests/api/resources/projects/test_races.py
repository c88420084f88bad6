"""Requests about projects that come at the same moment: none gets what only one can have, and none fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from api.tables.groups import ResourceGroup
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import is_somebody_waiting

pytestmark = pytest.mark.anyio

PROJECTS = f"{V1}/projects"


def hard(name: str, gpus: int) -> dict[str, Any]:
    return {"name": name, "quota_milli": gpus * 1000, "over_quota": False, "period": {"ends_at": None}}


async def test_two_that_ask_at_once_do_not_get_the_same_gpus(cluster: Cluster) -> None:
    """Row E2."""
    await cluster.add_node("worker1", 4)
    answers = await asyncio.gather(*(cluster.admin.post(PROJECTS, json=hard(f"team-{n}", 3)) for n in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409, 409]


async def test_two_that_grow_at_once_do_not_get_the_same_gpus(cluster: Cluster) -> None:
    await cluster.add_node("worker1", 8)
    for number in range(4):
        await ok(cluster.admin.post(PROJECTS, json=hard(f"team-{number}", 1)))
    answers = await asyncio.gather(
        *(cluster.admin.patch(f"{PROJECTS}/team-{n}", json={"quota_milli": 4000}) for n in range(4))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert sum(row["quota_milli"] for row in await ok(cluster.admin.get(PROJECTS))) == 7000


async def test_members_who_are_added_at_once_are_all_in(cluster: Cluster) -> None:
    names = [f"user-{number}" for number in range(6)]
    for name in names:
        await cluster.user(name)
    await cluster.add_project("team-a", 0)
    path = f"{PROJECTS}/team-a"
    await asyncio.gather(*(ok(cluster.admin.patch(path, json={"add_members": [name]})) for name in names))
    assert (await ok(cluster.admin.get(path)))["members"] == names
    changes = [{"remove_members": [names[0]]}, {"remove_members": [names[1]]}, {"add_managers": [names[2]]}]
    await asyncio.gather(*(ok(cluster.admin.patch(path, json=change)) for change in changes))
    shown = await ok(cluster.admin.get(path))
    assert (shown["managers"], shown["members"]) == (names[2:3], names[3:])


async def test_a_name_asked_for_twice_at_once_is_given_once(cluster: Cluster) -> None:
    answers = await asyncio.gather(*(cluster.admin.post(PROJECTS, json=hard("team-a", 0)) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


async def test_a_session_is_never_lost_with_its_project(cluster: Cluster) -> None:
    """Submitted while the project is deleted: either there is no project for it, or the project stays."""
    await cluster.add_image()
    outcomes = set()
    for number in range(8):
        name = f"team-{number}"
        await cluster.add_project(name)
        request = {"name": "demo", "project": name, "image": "python", "gpu_milli": 500}
        calls = [cluster.admin.post(f"{V1}/sessions", json=request), cluster.admin.delete(f"{PROJECTS}/{name}")]
        if number % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls)
        submitted, deleted = answers[::-1] if number % 2 else answers
        outcomes.add((submitted.status_code, deleted.status_code))
        if submitted.status_code == 201:
            shown = await ok(cluster.admin.get(f"{V1}/sessions/demo", params={"project": name}))
            assert shown["state"] == "PENDING"
    assert outcomes <= {(201, 409), (404, 200), (409, 200)}, outcomes


async def test_a_group_is_not_deleted_under_a_project_that_takes_it(cluster: Cluster) -> None:
    for number in range(6):
        group = f"group-{number}"
        await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": group}))
        await cluster.add_project(f"team-{number}")
        change = {"training_group": group}
        taken, deleted = await asyncio.gather(
            cluster.admin.patch(f"{PROJECTS}/team-{number}", json=change),
            cluster.admin.delete(f"{V1}/resource-groups/{group}"),
        )
        assert (taken.status_code, deleted.status_code) in {(200, 409), (422, 200), (409, 200)}


async def test_a_project_takes_no_group_that_moves_to_another_domain_meanwhile(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "night"}))
    await cluster.add_project()
    async with cluster.database.transaction() as db:
        await db.execute(update(ResourceGroup).values(domain="acme"))
        taking = asyncio.create_task(cluster.admin.patch(f"{PROJECTS}/team-a", json={"training_group": "night"}))
        while not await is_somebody_waiting(cluster):
            if taking.done():
                break
            await asyncio.sleep(0.01)
    assert (await refused(taking, 422))["where"] == "training_group"


async def test_a_title_asked_for_twice_at_once_is_given_once(cluster: Cluster) -> None:
    await cluster.add_project()
    for projects in ([], ["team-a"]):
        body = {"name": "torch", "tag": "1", "reference": "registry:5000/torch:1", "projects": projects}
        answers = await asyncio.gather(*(cluster.admin.post(f"{V1}/images", json=body) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
