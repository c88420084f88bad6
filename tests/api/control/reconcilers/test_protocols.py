"""Agents of several releases: what one does not know waits, and is never asked of it."""

from __future__ import annotations

from typing import Any

import pytest

from api.engine.base import UnreachableError
from common.messages import Since
from common.protocol import HEARTBEAT_PATH, PROTOCOL, ContainerSpec
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import once
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _large_shm_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents know since protocol 7 what a container's /dev/shm may be."""
    monkeypatch.setattr(ContainerSpec.model_fields["shm_mib"], "metadata", [Since(7)])


async def submit(cluster: Cluster, name: str, **more: Any) -> dict[str, Any]:
    await cluster.submit(name, memory_mib=1024, **more)
    await cluster.settle()
    return await cluster.session(name)


async def report(cluster: Cluster, name: str, protocol: int) -> None:
    assert (await cluster.heartbeat(name, protocol=protocol)).is_success
    await cluster.settle()


async def test_it_waits_until_a_node_knows_what_it_asks_for(ready: Cluster) -> None:
    await report(ready, "worker1", 6)
    assert (await submit(ready, "plain"))["state"] == "RUNNING"
    waits = await submit(ready, "new", shm_mib=512)
    assert (waits["state"], waits["cause"]) == ("PENDING", "no-node")
    assert waits["reason"] == (
        "worker1 cannot run what it asks for before the release of the API is installed there"
        "; ask the administrator when that is"
    )
    await report(ready, "worker2", 7)
    runs = await ready.session("new")
    assert (runs["state"], runs["node"]) == ("RUNNING", "worker2")


async def test_an_agent_that_says_nothing_knows_nothing_new(ready: Cluster) -> None:
    await report(ready, "worker1", 0)
    assert (await submit(ready, "new", shm_mib=512))["state"] == "PENDING"
    await report(ready, "worker1", 8)
    assert (await ready.session("new"))["state"] == "RUNNING"


async def test_a_gang_goes_where_all_know_it(ready: Cluster) -> None:
    await report(ready, "worker1", 6)
    await report(ready, "worker2", 7)
    gang = await submit(ready, "gang", gpu_milli=500, shm_mib=512, replicas=2)
    assert (gang["state"], {part["node"] for part in gang["containers"]}) == ("RUNNING", {"worker2"})


@pytest.mark.usefixtures("impatient")
async def test_an_agent_that_was_taken_back_since_is_not_asked(ready: Cluster) -> None:
    """Between the decision and the launch, which it did not hear of."""
    await report(ready, "worker1", 7)
    ready.engine.failure = UnreachableError("its agent is away", delivered=False)
    await ready.submit("new", memory_mib=1024, shm_mib=512)
    for _ in range(3):
        await once(ready)
    assert (await ready.session("new"))["state"] == "PREPARING"
    await ready.heartbeat(protocol=6)
    await ready.manager.observe()
    ready.engine.failure, ready.engine.calls = None, []
    for _ in range(3):
        await once(ready)
    waits = await ready.session("new")
    assert (waits["state"], ready.engine.calls) == ("PREPARING", [])
    assert "the agent of worker1 is of an earlier release" in waits["reason"]
    await ready.heartbeat(protocol=8)
    await ready.manager.observe()
    for _ in range(3):
        await once(ready)
    assert (await ready.session("new"))["state"] == "RUNNING"


async def test_words_of_a_later_release_in_a_heartbeat_end_nothing(ready: Cluster) -> None:
    before = await submit(ready, "train")
    assert before["state"] == "RUNNING"
    containers = [state for (node, _), state in ready.engine.containers.items() if node == before["node"]]
    report = beat(99_999, f"boot-{PROTOCOL}", name=before["node"], gpus=4, containers=containers).model_dump(
        mode="json"
    )
    report["containers"][0] |= {"status": "frozen", "enforcement": "confidential"}
    report["node_info"]["enforcement"] = report["node_info"]["gpus"][0]["enforcement"] = "confidential"
    async with ready.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": before["node"]}) as agent:
        answer = await agent.post(HEARTBEAT_PATH, json=report)
    assert answer.is_success, answer.text
    await ready.settle()
    after = await ready.session("train")
    assert (after["state"], after["attempt"]) == ("RUNNING", 0)
    node = next(node for node in await ok(ready.admin.get(f"{V1}/nodes")) if node["name"] == before["node"])
    assert (node["state"], node["enforcement"]) == ("ready", "none")
