"""Heads of the audit log that nodes keep: each agent is asked how far it has seen the log go, when that is verified."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from api.engine.base import AgentAddress, Engine
from api.resources.audit.chain import Head
from common.errors import PenstockError

AT_ONCE = 50
"""So many agents are asked at a time."""
ANSWER_S = 10.0


async def ask(engine: Engine, agents: Sequence[AgentAddress]) -> tuple[dict[str, list[Head]], list[str]]:
    """Return the heads that agents have seen, by their nodes, and the nodes that do not say."""
    room = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_ask(engine, agent, room) for agent in agents))
    seen = {agent.name: answer for agent, answer in zip(agents, answers, strict=True) if answer is not None}
    return seen, sorted({agent.name for agent in agents} - seen.keys())


async def _ask(engine: Engine, agent: AgentAddress, room: asyncio.Semaphore) -> list[Head] | None:
    async with room:
        try:
            told = await asyncio.wait_for(engine.audit_heads(agent), ANSWER_S)
        except (PenstockError, TimeoutError):
            return None
    return [Head(head.seq, head.mac) for head in told.heads]
