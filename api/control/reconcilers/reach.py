"""Nodes whose agents cannot be called, as behind a firewall that lets only their reports through.

Such a node is ready as long as it is not lost, and says so: people see in its message why nothing starts or ends on it.
"""

from __future__ import annotations

import structlog

from api.clock import now
from api.database import Database
from api.engine.base import UnreachableError
from api.resources.nodes import service as nodes
from api.tables.nodes import Node, NodeState

CANNOT_BE_CALLED = "its agent cannot be called since "

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
