"""Rules of open connections to apps: who has lost the right to one, by what the agents say of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.policy import Action
from api.resources.apps import repository
from api.resources.logins import callers
from api.resources.logins.callers import KnownCaller
from api.resources.sessions import access
from api.tables.sessions import Session
from common.app_protocol import AppCaller


async def leavers(
    db: AsyncSession, reported: Collection[AppCaller], at: datetime, idle_s: int
) -> tuple[list[AppCaller], list[KnownCaller]]:
    """Return who may not stay, and by which keys and logins the others do: an open connection is use of these."""
    known = await callers.by_names(db, {each.caller for each in reported}, at, idle_s)
    ids = {id_ for each in reported if (id_ := _session_id(each.container_id))}
    sessions = {session.id: session for session in await repository.of_ids(db, ids)}
    leave = []
    staying = {}
    for each in reported:
        caller = known.get(each.caller)
        session = sessions.get(_session_id(each.container_id) or UUID(int=0))
        if caller and session and _may_stay(caller, session):
            staying[each.caller] = caller
        else:
            leave.append(each)
    return leave, list(staying.values())


def _may_stay(known: KnownCaller, session: Session) -> bool:
    allowed = known.identity.allows(Action.APP_OPEN) and not known.must_change_password
    return allowed and access.may(known.identity, Action.APP_OPEN, session, session.project)


def _session_id(container_id: str) -> UUID | None:
    try:
        return UUID(container_id.removeprefix("session-")[:36])
    except ValueError:
        return None
