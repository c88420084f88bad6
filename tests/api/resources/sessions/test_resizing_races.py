"""Shares that are asked for at the same moment: together they are not more than one policy allows."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import UserRole
from api.resources.sessions import resizing
from api.resources.users import service as users
from common.errors import ConflictError
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body

pytestmark = pytest.mark.anyio

TOO_MUCH = "the policy students allows you 0.9 GPUs, and this would make 1 GPUs"


@pytest.fixture
async def limited(cluster: Cluster) -> Cluster:
    """Two sessions of 0.4 GPU on one GPU, of a user who may have 0.9."""
    await cluster.add_node("worker1", 1)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await ok(cluster.admin.post(f"{V1}/user-policies", json={"name": "students", "max_gpu_milli": 900}))
    for name in "ab":
        await cluster.submit(name, 400)
    await cluster.settle()
    await ok(cluster.admin.patch(f"{V1}/users/admin", json={"policy": "students"}))
    return cluster


async def resize(cluster: Cluster, name: str, milli: int = 500) -> httpx.Response:
    params = {"project": "team-a"}
    return await cluster.admin.patch(f"{V1}/sessions/{name}", params=params, json={"gpu_milli": milli})


async def shares(cluster: Cluster) -> list[int]:
    return [(await cluster.session(name))["gpu_milli"] for name in "ab"]


async def test_two_one_after_the_other(limited: Cluster) -> None:
    """The first is not done yet when the second is asked for."""
    assert (await resize(limited, "a")).status_code == 200
    assert (await refused(resize(limited, "b"), 409))["reason"] == TOO_MUCH
    assert (await resize(limited, "a")).status_code == 200, "the same again is not more"
    await limited.settle()
    assert await shares(limited) == [500, 400]
    assert (await refused(resize(limited, "b"), 409))["reason"] == TOO_MUCH
    await ok(resize(limited, "a", 400))
    assert (await refused(resize(limited, "b"), 409))["reason"] == TOO_MUCH, "what is given back is not there yet"
    await limited.settle()
    await ok(resize(limited, "b"))


async def test_two_at_once(limited: Cluster) -> None:
    answers = await asyncio.gather(resize(limited, "a"), resize(limited, "b"))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    await limited.settle()
    assert sorted(await shares(limited)) == [400, 500]


async def test_the_second_transaction_waits_for_the_first(limited: Cluster) -> None:
    """Whatever is between them: the second sees what the first has written."""
    admin = await identity(limited)

    async def ask(db: AsyncSession, name: str) -> None:
        await resizing.ask(db, "team-a", name, 500, admin, settings=limited.settings)

    async def second() -> None:
        async with limited.database.transaction() as db:
            await ask(db, "b")

    async with limited.database.transaction() as db:
        await ask(db, "a")
        waiting = asyncio.create_task(second())
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
    with pytest.raises(ConflictError, match=re.escape(TOO_MUCH)):
        await waiting


async def test_a_submission_beside_a_resize(limited: Cluster) -> None:
    """0.4 GPU and 0.4 are there; 0.1 more for one of them and 0.1 for a third do not go together."""
    submitted = limited.admin.post(f"{V1}/sessions", json=body("c", gpu_milli=100))
    answers = await asyncio.gather(resize(limited, "a"), submitted)
    assert sorted(answer.status_code for answer in answers) in ([200, 409], [201, 409])


async def identity(cluster: Cluster) -> Identity:
    async with cluster.database.reading() as db:
        return Identity(id=(await users.get(db, "admin")).id, name="admin", role=UserRole.ADMIN)
