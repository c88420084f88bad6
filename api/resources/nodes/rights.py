"""Rights to nodes: the people of a domain see those of the domain's resource groups, and change those of no others."""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.resources.groups import service as groups
from api.resources.nodes import service
from common.errors import ForbiddenError, NotFoundError
from common.sentence import Sentence


async def within(db: AsyncSession, caller: Identity) -> frozenset[str] | None:
    """Return the resource groups whose nodes the caller may see; None for all nodes, with a group or without."""
    reach = caller.reach(Action.NODE_READ)
    if reach.everything:
        return None
    return frozenset(await groups.names_of_domain(db, reach.domain) if reach.domain else ())


async def hidden(db: AsyncSession, caller: Identity) -> frozenset[str]:
    """Return the names of the nodes that the caller may not see."""
    seen = await within(db, caller)
    if seen is None:
        return frozenset()
    found = await groups.by_node(db)
    return frozenset(node.name for node in await service.every(db) if seen.isdisjoint(found.get(node.name, ())))


def without_names(text: str, hidden: Collection[str]) -> str:
    """Return a text that calls nodes with these names nothing but a node."""
    if not (text and hidden):
        return text
    names = "|".join(re.escape(name) for name in sorted(hidden, key=len, reverse=True))
    return re.sub(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)", "a node", text)


async def check(db: AsyncSession, name: str, caller: Identity, action: Action) -> None:
    """Raise NotFoundError for a node that the caller may not see, ForbiddenError where the caller may not do this."""
    seen = await within(db, caller)
    if seen is None:
        caller.check(action)
        return
    found = (await groups.by_node(db)).get(name, ())
    if seen.isdisjoint(found):
        raise NotFoundError(
            Sentence("there is no node {name}", name=name), where="name", hint=Sentence("list the nodes")
        )
    caller.check(action, domain=caller.domain)
    if action is not Action.NODE_READ and not seen.issuperset(found):
        raise ForbiddenError(
            Sentence("{name} is not of your domain alone", name=name),
            where="name",
            hint=Sentence("ask an administrator of the site"),
        )
