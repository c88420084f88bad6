"""Nodes whose agents cannot be called, as behind a firewall that lets only their reports through.

Such a node is ready as long as it is not lost, and says so: people see in its message why nothing ends on it. It takes
nothing new from the first call in vain until one gets through, for which its agent is called again and again.
"""

from __future__ import annotations

import structlog

from api.clock import Clock, now
from api.control.reconcilers.failures import all_of
from api.database import Database
from api.engine.base import Engine, UnreachableError
from api.resources.nodes import service as nodes
from api.resources.nodes.service import CANNOT_BE_CALLED
from api.resources.sessions.relay import agent_of
from api.tables.nodes import Node, NodeState
from common.errors import PenstockError

AGAIN_S = 8.0
"""How long after a call in vain an agent is called again."""

log = structlog.get_logger()


async def note(database: Database, node: Node, error: BaseException | None) -> None:
    """Say on a node, as it was read before a call, what came of that; any answer shows that the agent can be called.

    What else is wrong with the node comes first.
    """
    said = ""
    if isinstance(error, UnreachableError) and not error.answered:
        said = f"{CANNOT_BE_CALLED}{now():%Y-%m-%d %H:%M:%S} UTC: {error.problems[0].reason}"
    # Told once, with the moment of the first call in vain; nothing is written as long as all is well.
    is_due = not node.message if said else node.message.startswith(CANNOT_BE_CALLED)
    if is_due and node.state is NodeState.READY:
        async with database.transaction() as db:
            if await nodes.replace_message(db, node.id, node.message, said):
                log.warning("agent", node=node.name, message=said or "it can be called again")


class Probe:
    """Calls agents that could not be called, for where nothing is placed nobody else does."""

    def __init__(self, database: Database, engine: Engine, clock: Clock) -> None:
        """Begin with the first call."""
        self._database = database
        self._engine = engine
        self._clock = clock
        self._called = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time to call."""
        return self._clock.monotonic() - self._called >= AGAIN_S

    async def work(self) -> None:
        """Call all of them, and note who answers."""
        self._called = self._clock.monotonic()
        async with self._database.reading() as db:
            silent = await nodes.not_callable(db)
        await all_of(self._call(node) for node in silent)

    async def _call(self, node: Node) -> None:
        error = None
        try:
            await self._engine.probe(agent_of(node))
        except PenstockError as found:
            error = found
        await note(self._database, node, error)
