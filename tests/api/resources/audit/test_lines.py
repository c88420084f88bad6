"""Lines of the audit log: what they say is what was done, and who reads them sees no more than is theirs."""

from __future__ import annotations

import json
from contextlib import ExitStack
from uuid import UUID

import pytest
from starlette.types import Message, Receive, Scope, Send

from api.auth.policy import UserRole
from tests.api.cluster import V1, Cluster, ok
from tests.api.endpoints.routes import open_websocket
from tests.api.resources.audit.log import PROJECT, last, lines

pytestmark = pytest.mark.anyio


async def ready(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_image()
    await audited.add_project("team-a", 4000)


async def test_what_was_changed_says_of_which_project_it_is(audited: Cluster) -> None:
    await ready(audited)
    await audited.add_project("sound", 0)
    body = {"name": "one", "project": "team-a", "image": "python", "gpu_milli": 500}
    await ok(audited.admin.post(f"{V1}/sessions?project=sound", json=body))
    assert (await last(audited, action="session_submit"))["project"] == "team-a"


async def test_a_session_with_a_new_volume_is_told_by_its_own_name(audited: Cluster) -> None:
    await ready(audited)
    await audited.submit("one", pvcs=[{"name": "vic", "target": "/data"}])
    line = await last(audited, action="session_submit")
    assert (line["object"], line["project"]) == ("sessions/one", "team-a")


async def test_who_enters_by_an_id_is_found_by_the_name(audited: Cluster) -> None:
    await ready(audited)
    session = await audited.submit("one")
    await audited.settle()
    headers = {"Authorization": audited.admin.headers["Authorization"]}
    await open_websocket(audited.app, f"{V1}/sessions/{session['id']}/exec", headers)
    line = await last(audited, action="session_enter", object="sessions/one")
    assert (line["object"], line["project"], line["result"]) == ("sessions/one/exec", "team-a", "done")


async def test_the_action_is_what_the_body_needed(audited: Cluster) -> None:
    await audited.user("alice")
    await audited.add_project("vision", 1000)
    for body, action in (({"quota_milli": 0}, "project_change"), ({"members": ["alice"]}, "project_members")):
        await ok(audited.admin.patch(f"{V1}/projects/vision", json=body))
        assert (await last(audited, object="projects/vision"))["action"] == action
    await ok(audited.admin.post(f"{V1}/resource-groups", json={"name": "fast"}))
    for change, action in (({"gpu_model": "v100"}, "group_manage"), ({"users": ["alice"]}, "group_allow")):
        await ok(audited.admin.patch(f"{V1}/resource-groups/fast", json=change))
        assert (await last(audited, object="resource-groups/fast"))["action"] == action


async def test_a_domain_sees_no_change_of_another(audited: Cluster) -> None:
    for domain, project in (("acme", "rockets"), ("apex", "boats")):
        await ok(audited.admin.post(f"{V1}/domains", json={"name": domain}))
        await ok(audited.admin.post(f"{V1}/projects", json=PROJECT | {"name": project, "domain": domain}))
    chief = await audited.user("chief", UserRole.ADMIN)
    await ok(audited.admin.patch(f"{V1}/users/chief", json={"domain": "acme"}))
    await ok(audited.admin.post(f"{V1}/resource-groups", json={"name": "fast", "projects": ["rockets", "boats"]}))
    assert len((await last(audited, object="resource-groups/fast"))["changes"]) == 3
    (line, *_) = await ok(chief.get(f"{V1}/audit", params={"object": "resource-groups/fast"}))
    assert [change["subject"]["project"] for change in line["changes"]] == ["rockets"]
    assert line["domains"] == ["acme"]
    assert "boats" not in json.dumps(line)


async def test_a_domain_sees_what_the_site_puts_into_its_groups(audited: Cluster) -> None:
    for name in ("worker1", "worker2"):
        await audited.add_node(name)
    await ok(audited.admin.post(f"{V1}/domains", json={"name": "acme"}))
    chief = await audited.user("chief", UserRole.ADMIN)
    await ok(audited.admin.patch(f"{V1}/users/chief", json={"domain": "acme"}))
    await ok(audited.admin.post(f"{V1}/resource-groups", json={"name": "open", "nodes": ["worker2"]}))
    group = {"name": "fast", "domain": "acme", "nodes": ["worker1"]}
    await ok(audited.admin.post(f"{V1}/resource-groups", json=group))
    exchanged = {"add_nodes": ["worker2"], "remove_nodes": ["worker1"]}
    await ok(audited.admin.patch(f"{V1}/resource-groups/fast", json=exchanged))
    await audited.settle()
    patched, made = await ok(chief.get(f"{V1}/audit", params={"object": "resource-groups/fast"}))
    of_nodes = [
        (change["subject"], change["before"] is None)
        for change in (*made["changes"], *patched["changes"])
        if change["kind"] == "resource_group_nodes"
    ]
    of = {"group": "fast", "domain": "acme"}
    assert of_nodes[0] == ({**of, "node": "worker1"}, True)
    assert sorted(of_nodes[1:], key=lambda one: one[1]) == [
        ({**of, "node": "worker1"}, False),
        ({**of, "node": "worker2"}, True),
    ]
    assert (patched["domains"], patched["nodes"]) == (["acme"], ["worker1", "worker2"])
    assert await ok(chief.get(f"{V1}/audit", params={"object": "resource-groups/open"})) == []


async def test_one_terminal_too_many_is_told_as_that(audited: Cluster) -> None:
    await ready(audited)
    await audited.submit("one")
    await audited.settle()
    admin = await ok(audited.admin.get(f"{V1}/auth/me"))
    with ExitStack() as others:
        for _ in range(audited.settings.streams_per_user):
            others.enter_context(audited.app.state.streams.admit(UUID(admin["id"])))
        headers = {"Authorization": audited.admin.headers["Authorization"]}
        await open_websocket(audited.app, f"{V1}/sessions/one/exec", headers)
    told = [(line["result"], line["status"]) for line in await lines(audited, action="session_enter")]
    assert told == [("failed", 429)]


async def test_who_leaves_a_terminal_first_has_not_failed(audited: Cluster) -> None:
    async def left(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "websocket.close":
                raise OSError("the client has gone")
            await send(message)

        await audited.app(scope, receive, sent)

    await ready(audited)
    await audited.submit("one")
    await audited.settle()
    headers = {"Authorization": audited.admin.headers["Authorization"]}
    await open_websocket(left, f"{V1}/sessions/one/exec", headers)
    assert [line["result"] for line in await lines(audited, action="session_enter")] == ["done"]
