"""Row D10: a domain's administrators see and change only its projects and groups, and its hardware is its own."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import update

from api.auth.policy import UserRole
from api.tables.users import User
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

PROJECTS, GROUPS, IMAGES = f"{V1}/projects", f"{V1}/resource-groups", f"{V1}/images"


async def person(
    cluster: Cluster, name: str, domain: str | None, role: UserRole = UserRole.MEMBER
) -> httpx.AsyncClient:
    client = await cluster.user(name, role)
    async with cluster.database.transaction() as db:
        await db.execute(update(User).where(User.name == name).values(domain=domain))
    return client


@pytest.fixture
async def dora(cluster: Cluster) -> httpx.AsyncClient:
    """The administrator of the domain acme, which there is beside another one."""
    for name in ("acme", "other"):
        await ok(cluster.admin.post(f"{V1}/domains", json={"name": name}))
    return await person(cluster, "dora", "acme", UserRole.ADMIN)


def project(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "quota_milli": 1000, "period": {"ends_at": None}, **more}


async def test_what_a_domains_administrator_makes_belongs_to_the_domain(
    cluster: Cluster, dora: httpx.AsyncClient
) -> None:
    made = await ok(dora.post(PROJECTS, json=project("ours")))
    assert made["domain"] == "acme"
    assert (await ok(dora.patch(f"{PROJECTS}/ours", json={"quota_milli": 2000})))["quota_milli"] == 2000
    for domain in ("other", "nowhere"):
        await refused(dora.post(PROJECTS, json=project("theirs", domain=domain)), 403)
    await ok(dora.delete(f"{PROJECTS}/ours"))


async def test_other_projects_are_none_of_theirs(cluster: Cluster, dora: httpx.AsyncClient) -> None:
    await ok(cluster.admin.post(PROJECTS, json=project("theirs", domain="other")))
    await ok(cluster.admin.post(PROJECTS, json=project("sites")))
    await ok(cluster.admin.post(PROJECTS, json=project("ours", domain="acme")))
    assert [row["name"] for row in await ok(dora.get(PROJECTS))] == ["ours"]
    for name in ("theirs", "sites"):
        await refused(dora.get(f"{PROJECTS}/{name}"), 404)
        await refused(dora.patch(f"{PROJECTS}/{name}", json={"quota_milli": 0}), 404)
        await refused(dora.delete(f"{PROJECTS}/{name}"), 404)


async def test_only_its_users_come_to_its_projects(cluster: Cluster, dora: httpx.AsyncClient) -> None:
    await person(cluster, "alice", "acme")
    await person(cluster, "bob", "other")
    await person(cluster, "carol", None)
    await ok(dora.post(PROJECTS, json=project("ours", members=["alice"])))
    for field, name in (("members", "bob"), ("managers", "carol")):
        problem = await refused(dora.patch(f"{PROJECTS}/ours", json={field: [name]}), 422)
        assert (problem["where"], problem["reason"]) == (field, f"there is no user {name} of the domain acme")


async def test_who_there_is_elsewhere_cannot_be_tried_out(cluster: Cluster, dora: httpx.AsyncClient) -> None:
    await person(cluster, "bob", "other")
    await ok(cluster.admin.post(PROJECTS, json=project("theirs", domain="other")))
    await ok(cluster.admin.post(GROUPS, json={"name": "ours", "domain": "acme"}))
    await ok(dora.post(PROJECTS, json=project("our-project")))
    for path, field, there, nowhere in (
        (f"{PROJECTS}/our-project", "members", "bob", "nobody"),
        (f"{GROUPS}/ours", "users", "bob", "nobody"),
        (f"{GROUPS}/ours", "projects", "theirs", "nothing"),
    ):
        told = [await refused(dora.patch(path, json={field: [name]}), 422) for name in (there, nowhere)]
        assert told[0]["reason"].replace(there, nowhere) == told[1]["reason"]
        assert told[0]["hint"] == told[1]["hint"]


async def test_only_the_site_adds_people_of_a_domain_to_projects_of_none(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await person(cluster, "alice", "acme")
    await person(cluster, "carol", None)
    mary = await person(cluster, "mary", None)
    await ok(cluster.admin.post(PROJECTS, json=project("common", managers=["mary"])))
    told = [
        await refused(mary.patch(f"{PROJECTS}/common", json={"members": [name]}), 422) for name in ("alice", "nobody")
    ]
    assert told[0]["reason"].replace("alice", "nobody") == told[1]["reason"]
    await ok(cluster.admin.patch(f"{PROJECTS}/common", json={"members": ["alice"]}))
    await ok(mary.patch(f"{PROJECTS}/common", json={"members": ["alice", "carol"]}))


async def test_they_say_who_uses_their_groups_but_not_what_is_in_them(
    cluster: Cluster, dora: httpx.AsyncClient
) -> None:
    await person(cluster, "alice", "acme")
    bob = await person(cluster, "bob", "other")
    await ok(cluster.admin.post(GROUPS, json={"name": "ours", "domain": "acme", "open": True}))
    await ok(cluster.admin.post(GROUPS, json={"name": "theirs", "domain": "other"}))
    assert [row["name"] for row in await ok(dora.get(GROUPS))] == ["ours"]
    assert await ok(bob.get(GROUPS)) == [], "a domain's group is for its users only, also an open one"
    changed = await ok(dora.patch(f"{GROUPS}/ours", json={"open": False, "users": ["alice"]}))
    assert (changed["open"], changed["users"]) == (False, ["alice"])
    problem = await refused(dora.patch(f"{GROUPS}/ours", json={"users": ["bob"]}), 422)
    assert problem["reason"] == "there is no user bob of the domain acme"
    await refused(dora.patch(f"{GROUPS}/ours", json={"gpu_model": "a100"}), 403)
    await refused(dora.patch(f"{GROUPS}/theirs", json={"open": True}), 404)
    await refused(dora.post(GROUPS, json={"name": "more"}), 403)
    await refused(dora.delete(f"{GROUPS}/ours"), 403)


async def test_projects_keep_to_groups_of_their_own_domain_or_of_none(
    cluster: Cluster, dora: httpx.AsyncClient
) -> None:
    for name, domain in (("ours", "acme"), ("theirs", "other"), ("all", None)):
        await ok(cluster.admin.post(GROUPS, json={"name": name, "domain": domain, "open": name == "all"}))
    await ok(dora.post(PROJECTS, json=project("team", training_group="ours", interactive_group="all")))
    problem = await refused(dora.patch(f"{PROJECTS}/team", json={"training_group": "theirs"}), 422)
    assert problem["where"] == "training_group"
    problem = await refused(cluster.admin.post(PROJECTS, json=project("site", interactive_group="ours")), 422)
    assert problem["where"] == "interactive_group"


async def test_only_the_site_opens_its_closed_groups_to_a_domains_projects(
    cluster: Cluster, dora: httpx.AsyncClient
) -> None:
    """To keep to a group is to be allowed in it: that is not for the domain's administrator to say."""
    await ok(cluster.admin.post(GROUPS, json={"name": "closed"}))
    await ok(dora.post(PROJECTS, json=project("team")))
    for answer in (
        dora.patch(f"{PROJECTS}/team", json={"training_group": "closed"}),
        dora.post(PROJECTS, json=project("more", training_group="closed")),
    ):
        problem = await refused(answer, 422)
        assert (problem["where"], problem["reason"]) == (
            "training_group",
            "there is no resource group closed for this project",
        )
    await ok(cluster.admin.patch(f"{PROJECTS}/team", json={"training_group": "closed"}))
    changed = await ok(dora.patch(f"{PROJECTS}/team", json={"description": "Ours", "interactive_group": "closed"}))
    assert (changed["training_group"], changed["interactive_group"]) == ("closed", "closed"), "what it has stays"
    await ok(dora.post(PROJECTS, json=project("listed")))
    await ok(cluster.admin.patch(f"{GROUPS}/closed", json={"projects": ["listed"]}))
    await ok(dora.patch(f"{PROJECTS}/listed", json={"interactive_group": "closed"}))


async def test_the_quotas_of_a_domain_stay_within_its_own(cluster: Cluster, dora: httpx.AsyncClient) -> None:
    acme = f"{V1}/domains/acme"
    assert (await ok(cluster.admin.patch(acme, json={"quota_milli": 4000})))["quota_milli"] == 4000
    await ok(dora.post(PROJECTS, json=project("one", quota_milli=3000)))
    problem = await refused(dora.post(PROJECTS, json=project("two", quota_milli=1500)), 409)
    assert problem["where"] == "quota_milli"
    assert problem["reason"].endswith("the quotas of acme would come to 4.5 GPUs, and the domain may have 4")
    await ok(dora.post(PROJECTS, json=project("two", quota_milli=1000)))
    await refused(dora.patch(f"{PROJECTS}/one", json={"quota_milli": 3500}), 409)
    await refused(cluster.admin.patch(f"{PROJECTS}/one", json={"quota_milli": 3500}), 409)
    await ok(cluster.admin.post(PROJECTS, json=project("theirs", quota_milli=9000, domain="other")))
    await refused(dora.patch(acme, json={"quota_milli": None}), 403)

    await ok(cluster.admin.patch(acme, json={"quota_milli": 2000}))
    await ok(dora.patch(f"{PROJECTS}/one", json={"quota_milli": 2500}))
    await refused(dora.patch(f"{PROJECTS}/two", json={"quota_milli": 1500}), 409)
    await ok(cluster.admin.patch(acme, json={"quota_milli": None}))
    await ok(dora.patch(f"{PROJECTS}/two", json={"quota_milli": 9000}))


async def test_a_quota_of_a_domain_is_for_every_moment(cluster: Cluster, dora: httpx.AsyncClient) -> None:
    """What one project gives back at its end, another one may have from then on."""
    await ok(cluster.admin.patch(f"{V1}/domains/acme", json={"quota_milli": 4000}))
    ends_at = "2990-01-01T00:00:00Z"
    await ok(dora.post(PROJECTS, json=project("now", quota_milli=4000, period={"ends_at": ends_at})))
    later = project("later", quota_milli=4000, period={"starts_at": ends_at, "ends_at": None})
    await ok(dora.post(PROJECTS, json=later))
    problem = await refused(dora.patch(f"{PROJECTS}/now", json={"period": {"ends_at": None}}), 409)
    assert problem["where"] == "period"


async def test_images_of_a_domains_projects(cluster: Cluster, dora: httpx.AsyncClient) -> None:
    await ok(dora.post(PROJECTS, json=project("ours")))
    await ok(cluster.admin.post(PROJECTS, json=project("theirs", domain="other")))
    image = {"name": "torch", "tag": "1", "reference": "registry:5000/torch:1"}
    await refused(dora.post(IMAGES, json=image), 403)
    await refused(dora.post(IMAGES, json={**image, "projects": ["theirs"]}), 404)
    await ok(dora.post(IMAGES, json={**image, "projects": ["ours"]}))
    await ok(cluster.admin.post(IMAGES, json={**image, "projects": ["theirs"]}))
    assert [row["projects"] for row in await ok(dora.get(IMAGES))] == [["ours"]]
    await ok(dora.delete(f"{IMAGES}/torch:1", params={"project": "ours"}))
