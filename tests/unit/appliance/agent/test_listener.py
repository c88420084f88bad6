"""Who stands before the listeners of an agent and is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from appliance.agent.listener import Strangers


async def ended(addresses: Iterable[str], strangers: Strangers) -> list[int]:
    """Return which of those that came, in this order, have been sent away."""
    tasks = []
    for address in addresses:
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        strangers.admit(address, tasks[-1])
    await asyncio.sleep(0)
    gone = [number for number, task in enumerate(tasks) if task.cancelled()]
    for task in tasks:
        task.cancel()
    return gone


def test_the_oldest_of_an_address_goes_for_the_newest() -> None:
    strangers = Strangers(most=10, most_of_address=2)
    assert asyncio.run(ended("abaaa", strangers)) == [0, 2]


def test_the_oldest_of_all_goes_where_they_are_too_many_together() -> None:
    strangers = Strangers(most=3, most_of_address=3)
    assert asyncio.run(ended("abcde", strangers)) == [0, 1]


def test_who_has_gone_counts_no_more() -> None:
    strangers = Strangers(most=1, most_of_address=1)

    async def one_after_the_other() -> list[bool]:
        done = []
        for _ in range(3):
            task: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(0))
            strangers.admit("a", task)
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)
            done.append(task.cancelled())
        return done

    assert asyncio.run(one_after_the_other()) == [False, False, False]
