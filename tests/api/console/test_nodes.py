"""The pages of administrators: the nodes and the whole site."""

from __future__ import annotations

import re
from ipaddress import IPv4Address

import httpx
import pytest
from markupsafe import escape
from sqlalchemy import update

from api.console import nodes
from api.resources.nodes import lending
from api.tables.nodes import Node
from common.interfaces import Interface
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import lose

pytestmark = pytest.mark.anyio


async def test_a_node_is_taken_out_of_service_and_back(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert "Drain" in (await browser.get("/nodes")).text
    for mode in ("maintenance", "active", "draining"):
        answer = await browser.post("/nodes/worker1/mode", data={"mode": mode})
        assert (answer.status_code, answer.headers["hx-trigger"]) == (204, "refresh")
        assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["mode"] == mode
    assert "Back into service" in (await browser.get("/nodes")).text
    assert (await browser.post("/nodes/worker1/mode", data={"mode": "off"})).status_code == 422


async def test_the_interface_by_which_sessions_meet_is_chosen(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert '<select name="interface"' not in (await browser.get("/nodes")).text, "its agent tells of none"
    shown = [Interface(name=f"eth{number}", addresses=[IPv4Address(f"10.{number}.0.2")]) for number in range(2)]
    async with ready.database.transaction() as db:
        await db.execute(update(Node).values(interfaces=[each.model_dump(mode="json") for each in shown]))
    assert '<option value="eth1">eth1: 10.1.0.2</option>' in (await browser.get("/nodes")).text
    answer = await browser.post("/nodes/worker1/interface", data={"interface": "eth1"})
    assert (answer.status_code, answer.headers["hx-trigger"]) == (204, "refresh")
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["interface"] == "eth1"
    assert '<option value="eth1" selected>eth1: 10.1.0.2</option>' in (await browser.get("/nodes")).text
    assert (await browser.post("/nodes/worker1/interface", data={"interface": "eth9"})).status_code == 422
    await browser.post("/nodes/worker1/interface", data={"interface": ""})
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["interface"] == ""


async def test_nodes_stand_in_the_order_in_which_people_count(ready: Cluster, browser: httpx.AsyncClient) -> None:
    for name in ("worker10", "worker2"):
        await ready.add_node(name)
    group = {"name": "big", "nodes": ["worker10", "worker1", "worker2"], "open": True}
    await ok(ready.admin.post(f"{V1}/resource-groups", json=group))
    for path in ("/nodes", "/overview", "/resource-groups/big"):
        main = (await browser.get(path)).text.partition("<main")[2]
        assert list(dict.fromkeys(re.findall(r"worker\d+", main))) == ["worker1", "worker2", "worker10"], path


async def test_a_node_of_which_nothing_is_lent_says_why(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async with ready.database.transaction() as db:
        await lending.note(db, {"worker1": "Slurm: drained (fans)"}, {})
    for path in ("/nodes", "/overview"):
        assert '<small class="problem">Slurm: drained (fans)</small>' in (await browser.get(path)).text, path


async def test_a_node_whose_agent_fell_silent_says_why_beside_its_state(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    assert 'class="problem"' not in (await browser.get("/nodes")).text
    await lose(ready)
    page = (await browser.get("/nodes")).text
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["state"], bool(node["message"])) == ("lost", True)
    assert f'<small class="problem">{escape(node["message"])}</small>' in page
    assert "lost" in page


async def test_the_overview_counts_what_is_used(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", 1500)
    await ready.settle()
    used, _idle, _waiting, in_service, *_ = await _figures(browser)
    assert (used, in_service) == ("1.5 / 4", "1 / 1")
    await browser.post("/nodes/worker1/mode", data={"mode": "maintenance"})
    assert (await _figures(browser))[3] == "0 / 1"


async def _figures(browser: httpx.AsyncClient) -> list[str]:
    """The numbers at the top of the overview, as they are read."""
    found = re.findall(r'<div class="figure"><b>(.*?)</b>', (await browser.get("/overview")).text)
    return [re.sub("<[^>]*>", "", each) for each in found]


async def test_home_says_limits_and_what_is_left_of_them(ready: Cluster) -> None:
    policy = {"name": "small", "max_sessions": 3, "max_gpu_milli": 2000}
    await ok(ready.admin.post(f"{V1}/user-policies", json=policy))
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"policy": "small"}))
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        body = {"name": "first", "project": "team-a", "image": "python", "gpu_milli": 500}
        await ok(alice.post(f"{V1}/sessions", json=body))
        page = (await alice.get("/")).text
    assert '<th scope="row">GPUs</th><td>0</td><td>0.5</td><td>2</td><td>1.5</td>' in page
    assert '<th scope="row">Sessions</th><td>0</td><td>1</td><td>3</td><td>2</td>' in page
    assert '<th scope="row">Memory</th>' in page
    assert "<td>no limit</td><td></td>" in page


async def test_the_queue_says_who_waits_and_what_was_decided_last(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert "This process has decided nothing yet." in (await browser.get("/queue")).text
    await ready.submit("first", 3000)
    await ready.submit("second", 2000, preemptible=False)
    await ready.settle()
    page = " ".join((await browser.get("/queue")).text.split())
    assert re.search(r"<td>1</td><th scope=.row.><a [^>]*>second</a><small>[^<]+</small>", page)
    assert "with 1 of 1 nodes in service" in page
    cycle = ready.manager.loop.last
    assert cycle
    assert cycle.decision.log
    assert all(f"<li>{escape(line)}</li>" in page for line in cycle.decision.log)


async def test_nodes_are_searched_by_name_and_more_than_a_page_shows_are_told_of(
    ready: Cluster, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("worker2", "gpu-3"):
        await ready.add_node(name)
    found = (await browser.get("/nodes?q=Worker")).text
    assert ("worker1" in found, "worker2" in found, "gpu-3" in found) == (True, True, False)
    assert "search for the others" not in found
    assert "No node is called like that." in (await browser.get("/nodes?q=%00%25_")).text
    monkeypatch.setattr(nodes, "SHOWN", 2)
    assert "These are the first 2 nodes: search for the others." in (await browser.get("/nodes")).text
