"""The page of the queue: everybody finds the own place, and hears of others what they may see."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from api.auth.policy import UserRole
from api.tables.projects import Access
from api.tables.sessions import Session
from tests.api.cluster import V1, Cluster, ok, sign_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def waiting(cluster: Cluster) -> Cluster:
    """Two projects in domains of their own, sessions of both that wait, and one of them private."""
    await cluster.add_image()
    for domain, project in (("acme", "rockets"), ("globex", "planes")):
        await ok(cluster.admin.post(f"{V1}/domains", json={"name": domain}))
        body = {"name": project, "domain": domain, "quota_milli": 1000, "period": {"ends_at": None}}
        await ok(cluster.admin.post(f"{V1}/projects", json=body))
        for number in (1, 2):
            await cluster.submit(f"{project}-{number}", project=project, gpu_milli=1000)
    async with cluster.database.transaction() as db:
        for position, name in enumerate(("planes-1", "rockets-2", "planes-2", "rockets-1"), 1):
            await db.execute(update(Session).where(Session.name == name).values(position=position))
        await db.execute(update(Session).where(Session.name == "rockets-1").values(access=Access.PRIVATE))
    return cluster


async def queue_of(cluster: Cluster, name: str) -> str:
    async with cluster.client(Accept="text/html") as browser:
        await sign_in(browser, name)
        answer = await browser.get("/queue")
        assert answer.status_code == 200
        return " ".join(answer.text.split())


def shown(page: str) -> list[str]:
    return [name for part in page.split('<th scope="row">')[1:] for name in [part.split(">")[1].split("<")[0]]]


async def test_a_member_finds_the_projects_sessions_in_their_places_but_private_ones(waiting: Cluster) -> None:
    await waiting.user("mary")
    await ok(waiting.admin.patch(f"{V1}/users/mary", json={"domain": "acme"}))
    await ok(waiting.admin.patch(f"{V1}/projects/rockets", json={"members": ["mary"]}))
    page = await queue_of(waiting, "mary")
    assert shown(page) == ["rockets-2"]
    assert "<td>2</td>" in page
    assert "3 wait that you do not see." in page
    assert "planes" not in page
    assert "What was decided last" not in page


async def test_an_administrator_of_a_domain_finds_what_waits_in_it(waiting: Cluster) -> None:
    await waiting.user("boss", UserRole.ADMIN)
    await ok(waiting.admin.patch(f"{V1}/users/boss", json={"domain": "acme"}))
    page = await queue_of(waiting, "boss")
    assert shown(page) == ["rockets-2", "rockets-1"]
    assert "2 wait that you do not see." in page
    assert "What was decided last" not in page


async def test_who_looks_after_the_site_finds_all_and_what_was_decided(waiting: Cluster) -> None:
    page = await queue_of(waiting, "admin")
    assert shown(page) == ["planes-1", "rockets-2", "planes-2", "rockets-1"]
    assert "you do not see" not in page
    assert "What was decided last" in page


async def test_who_is_in_no_project_finds_nothing(waiting: Cluster) -> None:
    await waiting.user("newcomer")
    page = await queue_of(waiting, "newcomer")
    assert shown(page) == []
    assert "4 wait that you do not see." in page
