"""Nodes whose agents cannot be called say so themselves."""

from __future__ import annotations

import pytest

from api.control.reconcilers.reach import AGAIN_S
from api.engine.base import UnreachableError
from api.resources.nodes.service import CANNOT_BE_CALLED
from common.errors import ConflictError
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import delete, lose, run, try_again

pytestmark = pytest.mark.anyio

AWAY = UnreachableError("the agent of worker1 does not answer: ConnectTimeout", delivered=False)


async def message(cluster: Cluster) -> str:
    return str((await ok(cluster.admin.get(f"{V1}/nodes/worker1")))["message"])


async def test_a_node_says_that_nothing_can_be_started_on_it_until_something_can(ready: Cluster) -> None:
    ready.engine.failure = AWAY
    await ready.submit("demo")
    await ready.settle()
    said = await message(ready)
    assert said.startswith(CANNOT_BE_CALLED)
    assert said.endswith(f"UTC: {AWAY.problems[0].reason}")
    await ready.heartbeat()
    await try_again(ready)
    assert await message(ready) == said, "since when it is so stays, whatever the agent reports"
    ready.engine.failure = None
    await try_again(ready)
    assert (await ready.session("demo"))["state"] == "RUNNING"
    assert await message(ready) == ""


async def test_it_says_so_too_where_nothing_can_be_ended(ready: Cluster) -> None:
    await run(ready)
    ready.engine.failure = AWAY
    await delete(ready)
    await ready.settle()
    assert (await message(ready)).startswith(CANNOT_BE_CALLED)
    ready.engine.failure = None
    await try_again(ready)
    assert await message(ready) == ""


async def test_an_agent_that_refuses_can_be_called(ready: Cluster) -> None:
    ready.engine.failure = ConflictError("its GPUs are in use")
    await ready.submit("demo")
    await ready.settle()
    assert await message(ready) == ""


async def test_an_agent_that_answers_that_it_fails_can_be_called(ready: Cluster) -> None:
    ready.engine.failure = AWAY
    await ready.submit("demo")
    await ready.settle()
    said = "the agent of worker1 failed: the Docker Engine does not answer"
    ready.engine.failure = UnreachableError(said, delivered=True, answered=True)
    await try_again(ready)
    assert await message(ready) == ""
    assert (await ready.session("demo"))["reason"] == f"{said}; it is tried again"


async def test_it_is_not_said_to_report_when_it_may_be_silent_as_well(ready: Cluster) -> None:
    """Nobody has heard of it since its machine went down, and the node is not lost yet."""
    ready.engine.failure = AWAY
    await ready.submit("demo")
    await ready.settle()
    said = await message(ready)
    assert said.startswith("its agent cannot be called since ")
    assert "reports" not in said


async def test_what_a_lost_node_says_is_left_alone(ready: Cluster) -> None:
    await run(ready)
    await lose(ready)
    said = await message(ready)
    ready.engine.failure = AWAY
    await delete(ready)
    await try_again(ready)
    assert await message(ready) == said


async def test_nothing_is_placed_on_a_node_that_cannot_be_called_until_it_can(ready: Cluster) -> None:
    ready.engine.failure = AWAY
    await ready.submit("demo")
    await ready.settle()
    await ready.submit("second")
    await ready.settle()
    assert (await ready.session("second"))["state"] == "PENDING"
    await ready.heartbeat()
    await ready.settle()
    assert (await ready.session("second"))["state"] == "PENDING", "reports say nothing of calls"
    ready.engine.failure = None
    await try_again(ready)
    await ready.settle()
    assert (await ready.session("second"))["state"] == "RUNNING"


async def test_a_session_that_no_agent_takes_waits_again(ready: Cluster) -> None:
    ready.engine.failure = AWAY
    await ready.submit("demo")
    await ready.settle()
    ready.clock.passed += ready.settings.launch_limit_s + 1
    await try_again(ready)
    await try_again(ready)
    session = await ready.session("demo")
    assert session["state"] == "PENDING"
    ready.engine.failure = None
    await probe(ready)
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def probe(cluster: Cluster) -> None:
    """Let nodes that could not be called be called again, and what waited for them start."""
    cluster.clock.passed += AGAIN_S
    await cluster.settle()
    await cluster.settle()
