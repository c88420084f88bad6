"""A copy of a cluster's objects: it follows, and begins anew where it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from appliance.agent.kubernetes import mirror as module
from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.mirror import Mirror
from appliance.agent.kubernetes.pod_supervisor import NODES
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def mirror(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mirror[str]]:
    """The names of the nodes whose name is not hidden."""
    monkeypatch.setattr(module, "_PAUSE_S", 0.02)

    def keep(node: object) -> str | None:
        assert isinstance(node, dict)
        return None if node["metadata"]["labels"].get("hidden") else str(node["metadata"]["name"])

    mirror: Mirror[str] = Mirror(client, NODES, keep, lambda: None)
    task = asyncio.create_task(mirror.run())
    await until(lambda: names(mirror) == ["left", "right"])
    yield mirror
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def names(mirror: Mirror[str]) -> list[str]:
    return sorted(mirror.items.values())


async def test_changes_are_followed(mirror: Mirror[str], fake: FakeKubernetes) -> None:
    fake.add_node("middle")
    await until(lambda: names(mirror) == ["left", "middle", "right"])
    fake.remove_node("left")
    await until(lambda: names(mirror) == ["middle", "right"])
    fake.change_node("right", lambda node: node["metadata"]["labels"].update(hidden="yes"))
    await until(lambda: names(mirror) == ["middle"])


async def test_changes_that_were_missed_are_found_by_a_new_list(mirror: Mirror[str], fake: FakeKubernetes) -> None:
    fake.remove_node("left")
    fake.add_node("middle")
    fake.compact()
    await until(lambda: names(mirror) == ["middle", "right"])
    fake.add_node("last")
    await until(lambda: names(mirror) == ["last", "middle", "right"])


async def test_a_cluster_that_is_away_is_waited_out(mirror: Mirror[str], fake: FakeKubernetes) -> None:
    fake.away = True
    fake.add_node("middle")
    await asyncio.sleep(0.1)
    fake.away = False
    await until(lambda: names(mirror) == ["left", "middle", "right"])


async def test_a_watch_that_ends_by_itself_goes_on(
    mirror: Mirror[str], fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_S", 0)
    fake.compact()
    fake.add_node("middle")
    await until(lambda: names(mirror) == ["left", "middle", "right"])


async def test_an_object_that_cannot_be_read_hides_no_other(mirror: Mirror[str], fake: FakeKubernetes) -> None:
    fake.change_node("left", lambda node: node["metadata"].update(labels=None))
    await until(lambda: names(mirror) == ["right"])
    await mirror.load()
    assert names(mirror) == ["right"]
    fake.change_node("left", lambda node: node["metadata"].update(labels={}))
    fake.add_node("middle")
    await until(lambda: names(mirror) == ["left", "middle", "right"])


async def test_a_version_that_the_cluster_takes_no_longer_is_asked_for_anew(
    mirror: Mirror[str], fake: FakeKubernetes
) -> None:
    fake.add_node("middle")
    await until(lambda: names(mirror) == ["left", "middle", "right"])
    fake.restore()
    fake.remove_node("left")
    await until(lambda: names(mirror) == ["middle", "right"])


async def test_what_the_watch_told_already_is_newer_than_an_answer(mirror: Mirror[str], client: Client) -> None:
    [left, _], _ = await client.every(NODES)
    old = {"metadata": {**left["metadata"], "name": "old"}}
    mirror.put(old)
    assert names(mirror) == ["left", "right"]
    mirror.put({"metadata": {"uid": "new", "name": "new", "labels": {}}})
    assert names(mirror) == ["left", "new", "right"]
    mirror.drop("new")
    assert names(mirror) == ["left", "right"]


async def test_a_bookmark_says_how_far_it_is_and_changes_nothing(mirror: Mirror[str], fake: FakeKubernetes) -> None:
    """Where nothing of ours happens, it keeps the version from getting too old."""
    fake.add_pod("somebody-elses")
    fake.bookmark()
    await until(lambda: int(mirror._version) == fake._version)
    assert names(mirror) == ["left", "right"]
    fake.compact()
    fake.requests.clear()
    fake.add_node("middle")
    await until(lambda: names(mirror) == ["left", "middle", "right"])
    assert len(fake.requests) <= 1, "no new list was needed"


async def test_what_no_longer_meets_the_selector_is_gone(client: Client, fake: FakeKubernetes) -> None:
    fake.change_node("left", lambda node: node["metadata"]["labels"].update(pool="a"))
    mirror: Mirror[str] = Mirror(
        client, NODES, lambda node: str(node["metadata"]["name"]), lambda: None, selector="pool=a"
    )
    task = asyncio.create_task(mirror.run())
    await until(lambda: names(mirror) == ["left"])
    fake.change_node("right", lambda node: node["metadata"]["labels"].update(pool="a"))
    await until(lambda: names(mirror) == ["left", "right"])
    fake.change_node("left", lambda node: node["metadata"]["labels"].pop("pool"))
    await until(lambda: names(mirror) == ["right"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
