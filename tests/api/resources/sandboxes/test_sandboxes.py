"""Sandboxes: administrators write them and say for whom they are; sessions get one and keep its rules."""

from __future__ import annotations

from typing import Any

import pytest

from api.auth.policy import UserRole
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

NO_FOLDERS = {"calls": ["mkdir", "mkdirat"], "errno": "EROFS"}
NO_PACKETS = {"calls": ["socket"], "when": [{"argument": 0, "values": [17]}], "ends": True}


@pytest.fixture(autouse=True)
async def site(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await cluster.add_project("team-b", 4000)


async def make(cluster: Cluster, name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"name": name, "rules": rules or [NO_FOLDERS], **more}
    return dict(await ok(cluster.admin.post(f"{V1}/sandboxes", json=body)))


async def sandbox_of(cluster: Cluster, session: str, project: str = "team-a", **more: Any) -> str:
    await cluster.submit(session, 100, project, **more)
    return str((await cluster.session(session, project))["sandbox"])


async def test_a_sandbox_is_kept_as_it_was_written(cluster: Cluster) -> None:
    made = await make(cluster, "strict", NO_FOLDERS, NO_PACKETS, projects=["team-a"], description="no folders")
    assert made == await ok(cluster.admin.get(f"{V1}/sandboxes/strict"))
    assert made["rules"] == [
        {"calls": ["mkdir", "mkdirat"], "when": [], "errno": "EROFS", "ends": False},
        {
            "calls": ["socket"],
            "when": [{"argument": 0, "values": [17], "bits": 0}],
            "errno": "EPERM",
            "ends": True,
        },
    ]
    assert (made["projects"], made["images"], made["site_wide"]) == (["team-a"], [], False)


async def test_a_session_has_the_sandbox_of_its_image_else_its_project_else_the_site(cluster: Cluster) -> None:
    assert await sandbox_of(cluster, "free") == ""
    await make(cluster, "wide", site_wide=True)
    assert await sandbox_of(cluster, "one") == "wide"
    await make(cluster, "ours", projects=["team-a"])
    assert await sandbox_of(cluster, "two") == "ours"
    assert await sandbox_of(cluster, "three", "team-b") == "wide"
    [image] = await ok(cluster.admin.get(f"{V1}/images"))
    await make(cluster, "image", images=[f"{image['name']}:{image['tag']}"])
    assert await sandbox_of(cluster, "four") == "image"
    # who takes the image by its reference, past the list, does not get around its sandbox
    assert await sandbox_of(cluster, "five", image=image["reference"], local_image=True) == "image"


async def test_a_sandbox_without_rules_spares_its_sessions_the_one_of_the_site(cluster: Cluster) -> None:
    await make(cluster, "wide", site_wide=True)
    await ok(cluster.admin.post(f"{V1}/sandboxes", json={"name": "open", "rules": [], "projects": ["team-a"]}))
    assert await sandbox_of(cluster, "one") == "open"
    await cluster.settle()
    assert [spec.sandbox for spec in cluster.engine.specs.values()] == [None]


async def test_agents_get_the_rules_and_a_session_keeps_those_that_it_was_submitted_with(cluster: Cluster) -> None:
    await make(cluster, "wide", NO_FOLDERS, site_wide=True)
    await cluster.submit("one", 100)
    await ok(cluster.admin.patch(f"{V1}/sandboxes/wide", json={"rules": [NO_PACKETS]}))
    await cluster.submit("two", 100)
    await ok(cluster.admin.delete(f"{V1}/sandboxes/wide"))
    await cluster.settle()
    denied = {
        spec.session_name: (spec.sandbox.name, spec.sandbox.rules[0].calls)
        for spec in cluster.engine.specs.values()
        if spec.sandbox
    }
    assert denied == {"one": ("wide", ["mkdir", "mkdirat"]), "two": ("wide", ["socket"])}


@pytest.mark.parametrize(
    ("rule", "where", "reason"),
    [
        ({"calls": ["mkdirrat"]}, "rules[0].calls", "no system call mkdirrat"),
        ({"calls": ["execve"]}, "rules[0]", "no container starts without execve"),
        ({"calls": []}, "rules[0].calls", "is empty"),
        ({"calls": ["mkdir"], "errno": "ENONSENSE"}, "rules[0].errno", "no error of the system"),
        ({"calls": ["socket"], "when": [{"argument": 0}]}, "rules[0].when[0]", "one of `values` and `bits`"),
        (
            {"calls": ["socket"], "when": [{"argument": 6, "bits": 1}]},
            "rules[0].when[0].argument",
            "is more than",
        ),
        (
            {"calls": ["socket"], "when": [{"argument": 0, "bits": 1}, {"argument": 0, "bits": 2}]},
            "rules[0].when",
            "tested twice",
        ),
    ],
)
async def test_what_could_not_be_held_is_refused(
    cluster: Cluster, rule: dict[str, Any], where: str, reason: str
) -> None:
    answer = cluster.admin.post(f"{V1}/sandboxes", json={"name": "strict", "rules": [rule]})
    problem = await refused(answer, 422)
    assert problem["where"] == where
    assert reason in problem["reason"]


@pytest.mark.parametrize(
    ("more", "where"),
    [({"site_wide": True}, "site_wide"), ({"projects": ["team-a"]}, "projects"), ({"images": ["python"]}, "images")],
)
async def test_nobody_has_two_sandboxes(cluster: Cluster, more: dict[str, Any], where: str) -> None:
    [image] = await ok(cluster.admin.get(f"{V1}/images"))
    if "images" in more:
        more = {"images": [image["name"]]}
    await make(cluster, "first", **more)
    await make(cluster, "third")
    for again in (
        cluster.admin.post(f"{V1}/sandboxes", json={"name": "second", **more}),
        cluster.admin.patch(f"{V1}/sandboxes/third", json=more),
    ):
        problem = await refused(again, 409)
        assert problem["where"] == where
        assert "the sandbox first already" in problem["reason"]
    # what it has itself is no other's
    await ok(cluster.admin.patch(f"{V1}/sandboxes/first", json=more))


async def test_a_name_is_taken_once_and_what_is_not_there_is_said(cluster: Cluster) -> None:
    await make(cluster, "strict")
    await refused(cluster.admin.post(f"{V1}/sandboxes", json={"name": "strict"}), 409)
    await refused(cluster.admin.get(f"{V1}/sandboxes/other"), 404)
    await refused(cluster.admin.post(f"{V1}/sandboxes", json={"name": "other", "projects": ["nobody"]}), 422)
    await refused(cluster.admin.patch(f"{V1}/sandboxes/strict", json={"rules": None}), 422)


async def test_members_see_what_is_denied_and_only_their_projects_and_change_nothing(cluster: Cluster) -> None:
    ada = await cluster.user("ada")
    await cluster.add_project("team-c", 1000, "ada")
    await make(cluster, "strict", projects=["team-a", "team-c"])
    [seen] = await ok(ada.get(f"{V1}/sandboxes"))
    assert seen["projects"] == ["team-c"]
    assert seen["rules"][0]["errno"] == "EROFS"
    await refused(ada.delete(f"{V1}/sandboxes/strict"), 403)
    auditor = await cluster.user("olga", UserRole.AUDITOR)
    assert (await ok(auditor.get(f"{V1}/sandboxes/strict")))["projects"] == ["team-a", "team-c"]
    await refused(auditor.patch(f"{V1}/sandboxes/strict", json={"description": "x"}), 403)
