"""Images: who registers them for whom, which one a name means, and whether a node finds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from api.resources.images import service
from api.resources.projects import service as projects
from api.tables.projects import Project
from common.errors import InputError
from common.protocol import ImageState, ImageStatus
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

IMAGES = f"{V1}/images"
HUB = ".".join(("docker", "io"))
"""The registry that an engine means where a reference names none."""


def image(name: str = "torch", tag: str = "1.7", **more: Any) -> dict[str, Any]:
    return {"name": name, "tag": tag, "reference": f"registry:5000/{name}:{tag}", **more}


@dataclass
class Site:
    """Two projects, each with a member, and a manager of both."""

    cluster: Cluster
    alice: httpx.AsyncClient
    bob: httpx.AsyncClient
    carol: httpx.AsyncClient


@asynccontextmanager
async def two_teams(cluster: Cluster) -> AsyncIterator[Site]:
    async with (
        await cluster.user("alice") as alice,
        await cluster.user("bob") as bob,
        await cluster.user("carol") as carol,
    ):
        await cluster.add_project("team-a", 1000, "alice")
        await cluster.add_project("team-b", 1000, "bob")
        for name in ("team-a", "team-b"):
            await ok(cluster.admin.patch(f"{V1}/projects/{name}", json={"managers": ["carol"]}))
        yield Site(cluster, alice, bob, carol)


@pytest.fixture
async def site(cluster: Cluster) -> AsyncIterator[Site]:
    async with two_teams(cluster) as made:
        yield made


async def titles(client: httpx.AsyncClient, **params: str) -> list[str]:
    return [f"{row['name']}:{row['tag']}" for row in await ok(client.get(IMAGES, params=params))]


async def test_a_member_registers_an_image_for_a_project(site: Site) -> None:
    """Row G1: users may do it too."""
    made = await ok(site.alice.post(IMAGES, json=image(description="Ours", projects=["team-a"])))
    assert (made["visibility"], made["projects"], made["created_by"]) == ("projects", ["team-a"], "alice")
    assert (made["description"], made["status"], made["error"], made["size"]) == ("Ours", "unchecked", "", 0)
    assert await ok(site.alice.get(IMAGES)) == [made]


async def test_other_projects_can_neither_list_nor_use_it(site: Site) -> None:
    """Row G2."""
    await ok(site.cluster.admin.post(IMAGES, json=image("python", "3.11")))
    await ok(site.alice.post(IMAGES, json=image(projects=["team-a"])))
    assert await titles(site.bob) == ["python:3.11"]
    assert await titles(site.carol, project="team-b") == ["python:3.11"]
    assert await titles(site.carol, project="team-a") == await titles(site.alice) == ["python:3.11", "torch:1.7"]
    assert (await site.cluster.submit("one", image="torch", project="team-a"))["image"] == "torch:1.7"
    for wanted in ("torch", "torch:1.7", "registry:5000/torch:1.7"):
        body = {"name": "two", "project": "team-b", "image": wanted, "gpu_milli": 500}
        problem = await refused(site.bob.post(f"{V1}/sessions", json=body), 422)
        assert problem["reason"] == f"there is no image {wanted}"
        assert "torch" not in problem["hint"]
    await refused(site.bob.delete(f"{IMAGES}/torch:1.7"), 404)
    await refused(site.bob.delete(f"{IMAGES}/torch:1.7", params={"project": "team-a"}), 404)


async def test_only_administrators_offer_images_to_all(site: Site) -> None:
    for client in (site.alice, site.carol):
        problem = await refused(client.post(IMAGES, json=image()), 403)
        assert problem["where"] == "projects"
    await refused(site.alice.post(IMAGES, json=image(projects=["team-b"])), 404)
    await ok(site.cluster.admin.post(IMAGES, json=image()))
    await refused(site.carol.delete(f"{IMAGES}/torch:1.7"), 403)
    await refused(site.carol.post(f"{IMAGES}/torch:1.7/check"), 403)


async def test_two_projects_may_use_one_name(site: Site) -> None:
    await ok(site.alice.post(IMAGES, json=image(projects=["team-a"])))
    await ok(site.bob.post(IMAGES, json=image(projects=["team-b"]) | {"reference": "registry:5000/theirs:1.7"}))
    await ok(site.cluster.admin.post(IMAGES, json=image()))
    await refused(site.alice.post(IMAGES, json=image(projects=["team-a"])), 409)
    await refused(site.carol.post(IMAGES, json=image(projects=["team-a", "team-b"])), 409)
    await refused(site.cluster.admin.post(IMAGES, json=image()), 409)


async def test_who_registered_it_or_manages_all_its_projects_deletes_it(site: Site) -> None:
    await ok(site.cluster.admin.post(IMAGES, json=image(projects=["team-a", "team-b"])))
    await refused(site.alice.delete(f"{IMAGES}/torch:1.7", params={"project": "team-a"}), 403)
    await ok(site.carol.delete(f"{IMAGES}/torch:1.7", params={"project": "team-a"}))
    await ok(site.alice.post(IMAGES, json=image(projects=["team-a"])))
    await ok(site.alice.delete(f"{IMAGES}/torch:1.7", params={"project": "team-a"}))
    assert await titles(site.cluster.admin) == []


async def test_a_project_takes_the_images_with_it_that_only_it_may_use(site: Site) -> None:
    await ok(site.carol.post(IMAGES, json=image("own", projects=["team-a"])))
    await ok(site.carol.post(IMAGES, json=image("shared", projects=["team-a", "team-b"])))
    await ok(site.cluster.admin.delete(f"{V1}/projects/team-a"))
    rows = await ok(site.cluster.admin.get(IMAGES))
    assert [(row["name"], row["projects"]) for row in rows] == [("shared", ["team-b"])]


async def resolved(site: Site, wanted: str, project: str | None) -> str:
    async with site.cluster.database.reading() as db:
        rows = {row.name: row for row in await projects.every(db)}
        owner: Project | None = rows[project] if project else None
        return (await service.resolve(db, wanted, owner.id if owner else None)).reference


async def test_the_own_image_comes_before_the_global_one(site: Site) -> None:
    await ok(site.cluster.admin.post(IMAGES, json=image(tag="1.7")))
    await ok(site.cluster.admin.post(IMAGES, json=image(tag="1.8")))
    await ok(site.alice.post(IMAGES, json=image(tag="1.7", projects=["team-a"]) | {"reference": "own:1.7"}))
    assert await resolved(site, "torch:1.7", "team-a") == "own:1.7"
    assert await resolved(site, "torch:1.7", "team-b") == "registry:5000/torch:1.7"
    assert await resolved(site, "torch", "team-a") == "own:1.7", "also where a global one has a higher version"
    assert await resolved(site, "torch", "team-b") == "registry:5000/torch:1.8"
    assert await resolved(site, "torch:1.8", "team-a") == "registry:5000/torch:1.8"
    assert await resolved(site, "torch", None) == "registry:5000/torch:1.8"


async def test_a_name_alone_is_the_highest_version_not_the_last_registered(site: Site) -> None:
    for tag in ("3.12", "3.9", "3.13rc1", "3.12-slim"):
        await ok(site.cluster.admin.post(IMAGES, json=image("python", tag)))
    assert (await resolved(site, "python", None)).endswith(":3.13rc1")
    await ok(site.cluster.admin.post(IMAGES, json=image("python", "latest")))
    assert (await resolved(site, "python", None)).endswith(":latest")


async def test_an_unknown_image_says_what_there_is(site: Site) -> None:
    for number in range(22):
        await ok(site.cluster.admin.post(IMAGES, json=image("torch", str(number))))
    async with site.cluster.database.reading() as db:
        with pytest.raises(InputError) as error:
            await service.resolve(db, "tensorflow", None)
    hint = error.value.problems[0].hint
    assert hint.startswith("choose one of torch:")
    assert "and 2 more; a name alone means `latest` or its highest version" in hint


async def test_the_image_of_another_project_is_not_there_for_a_session(site: Site) -> None:
    """Neither by its reference, nor as an image that the nodes have already."""
    secret = image("secret", projects=["team-b"])
    await ok(site.bob.post(IMAGES, json=secret))
    await site.cluster.add_node()
    asked = {"name": "demo", "project": "team-a", "gpu_milli": 500, "image": secret["reference"]}
    for more in ({}, {"local_image": True}):
        error = await refused(site.alice.post(f"{V1}/sessions", json={**asked, **more}), 422)
        assert (error["where"], error["reason"]) == ("image", f"there is no image {secret['reference']}")
    await ok(site.carol.post(IMAGES, json={**secret, "name": "both", "projects": ["team-a"]}))
    await ok(site.alice.post(f"{V1}/sessions", json={**asked, "local_image": True}))


async def test_who_knows_the_reference_of_another_projects_image_cannot_register_it(site: Site) -> None:
    """However it is written, and nothing tells whose it is; who sees the project, and administrators, may."""
    secret = image("secret", projects=["team-b"])
    await ok(site.bob.post(IMAGES, json=secret))
    mine = {**secret, "name": "mine", "projects": ["team-a"]}
    error = await refused(site.alice.post(IMAGES, json=mine), 403)
    assert (error["where"], error["reason"]) == (
        "reference",
        f"the image {secret['reference']} is not for your projects",
    )
    assert not {"team-b", "bob"} & set(str(error).split())
    assert await titles(site.alice) == []
    await ok(site.carol.post(IMAGES, json=mine))
    assert await titles(site.alice) == ["mine:1.7"]
    await ok(site.alice.post(IMAGES, json={**mine, "name": "again"}))


@pytest.mark.parametrize("written", ["own", "own:latest", f"{HUB}/library/own"])
async def test_another_way_to_write_a_reference_is_no_way_around(site: Site, written: str) -> None:
    await ok(site.bob.post(IMAGES, json=image(projects=["team-b"]) | {"reference": "library/own"}))
    asked = image(projects=["team-a"]) | {"reference": written}
    assert (await refused(site.alice.post(IMAGES, json=asked), 403))["where"] == "reference"
    await ok(site.cluster.admin.post(IMAGES, json=asked))


async def test_a_digest_that_is_known_is_no_way_around_either(site: Site) -> None:
    await site.cluster.add_node()
    secret = image("secret", projects=["team-b"])
    known = ImageState(reference=secret["reference"], status=ImageStatus.READY, digest="sha256:12ab")
    site.cluster.engine.images[secret["reference"]] = known
    await ok(site.bob.post(IMAGES, json=secret))
    await site.cluster.settle()
    asked = image("mine", projects=["team-a"]) | {"reference": "registry:5000/secret@sha256:12ab"}
    assert (await refused(site.alice.post(IMAGES, json=asked), 403))["where"] == "reference"
    await ok(site.carol.post(IMAGES, json=asked))


@pytest.mark.parametrize("written", ["5", "12ab" * 16, "sha256:5", f"sha256:{'12ab' * 16}"])
async def test_what_could_be_an_id_is_no_reference(site: Site, written: str) -> None:
    """By one digit of an id everybody would run what others have for themselves."""
    asked = image("mine", projects=["team-a"]) | {"reference": written}
    error = await refused(site.alice.post(IMAGES, json=asked), 422)
    assert (error["where"], error["reason"].partition(" could")[0]) == ("reference", written)
    await site.cluster.add_node()
    body = {"name": "demo", "project": "team-a", "gpu_milli": 500, "image": written, "local_image": True}
    error = await refused(site.alice.post(f"{V1}/sessions", json=body), 422)
    assert (error["where"], error["reason"].partition(" could")[0]) == ("image", written)


async def test_only_registries_of_the_site_are_registered_with(site: Site) -> None:
    """Whoever it is: nodes would tell what listens where."""
    for client, own in ((site.alice, ["team-a"]), (site.cluster.admin, [])):
        asked = image(projects=own) | {"reference": "10.0.0.1:22/a/b:1"}
        error = await refused(client.post(IMAGES, json=asked), 422)
        assert (error["where"], error["reason"]) == ("reference", "this site pulls no images from 10.0.0.1:22")
        assert error["hint"].startswith("name one of its registries: reservoir:5000, ")
    await ok(site.alice.post(IMAGES, json=image(projects=["team-a"]) | {"reference": "on-the-nodes:1"}))


@pytest.mark.parametrize("path", ["../v2/x:1", "a//b", "a/./b", "a:1:2", "a/", "a@b", "-a"])
async def test_what_no_engine_reads_is_no_reference(site: Site, path: str) -> None:
    asked = image("mine", projects=["team-a"]) | {"reference": f"reservoir:5000/{path}"}
    assert (await refused(site.alice.post(IMAGES, json=asked), 422))["where"] == "reference"


async def test_what_is_global_may_be_registered_by_everybody(site: Site) -> None:
    await ok(site.bob.post(IMAGES, json=image(projects=["team-b"])))
    await ok(site.cluster.admin.post(IMAGES, json=image()))
    await ok(site.alice.post(IMAGES, json=image(projects=["team-a"])))


async def test_of_two_at_once_one_has_the_image(site: Site) -> None:
    asked = [(site.alice, "team-a"), (site.bob, "team-b")]
    answers = await asyncio.gather(*(client.post(IMAGES, json=image(projects=[name])) for client, name in asked))
    assert sorted(answer.status_code for answer in answers) == [201, 403]
