"""Containers whose programs lose their GPUs before they are killed, since others would be hurt by that."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from appliance.agent.docker import lifecycle
from appliance.agent.docker.lifecycle import Lifecycle
from common.errors import UnavailableError

pytestmark = pytest.mark.anyio


class Node:
    """An engine whose containers end `takes_s` after they were told to, and shares of which others hang on one."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.happened: list[str] = []
        self.refuses: Exception | None = None

    def stop(self, identity: str, grace_s: int) -> None:
        self.happened.append("told to end")
        time.sleep(min(self.takes_s, grace_s))
        self.happened.append("killed" if self.takes_s >= grace_s else "ended")

    remove = stop

    def detaches(self, identity: str) -> bool:
        return identity == "entangled"

    def detach(self, identity: str) -> None:
        if self.refuses:
            raise self.refuses
        self.happened.append("detached")

    def release(self, identity: str) -> None:
        self.happened.append("released")

    def leave(self, identity: str) -> None:
        self.happened.append("left")


def lifecycle_of(node: Node) -> Lifecycle:
    every: Any = cast("Any", node)
    return Lifecycle(every, every, every, every, every)


async def test_programs_that_are_killed_at_once_lose_their_gpus_before() -> None:
    await lifecycle_of(node := Node()).stop("entangled", 0)
    assert node.happened == ["detached", "told to end", "killed"]


async def test_programs_keep_their_gpus_for_most_of_the_time_that_they_have_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "DETACH_S", 0.7)
    await lifecycle_of(node := Node(takes_s=5)).stop("entangled", 1)
    assert node.happened == ["told to end", "detached", "killed"]


async def test_programs_that_end_in_time_never_lose_them() -> None:
    begun, tasks = time.monotonic(), asyncio.all_tasks()
    await lifecycle_of(node := Node(takes_s=0.1)).stop("entangled", 30)
    assert (node.happened, time.monotonic() - begun < 20) == (["told to end", "ended"], True)
    assert not [task for task in asyncio.all_tasks() - tasks if "_detach" in repr(task)]


async def test_a_container_is_removed_in_the_same_way_and_others_are_not_detached() -> None:
    await lifecycle_of(node := Node()).remove("entangled", 0)
    assert node.happened == ["detached", "told to end", "killed", "released", "left"]
    await lifecycle_of(node := Node()).stop("alone", 0)
    assert node.happened == ["told to end", "killed"]


@pytest.mark.parametrize(
    "refusal",
    [UnavailableError("it does not answer", where="gpus", hint=""), ValueError("an answer of a liar")],
    ids=str,
)
async def test_a_service_that_does_not_answer_or_lies_holds_up_no_end(refusal: Exception) -> None:
    node = Node()
    node.refuses = refusal
    await lifecycle_of(node).stop("entangled", 0)
    assert node.happened == ["told to end", "killed"]
