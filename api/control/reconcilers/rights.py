"""Rights that somebody has lost: a session of theirs that does not run yet is not to begin.

What runs goes on: it is the project's, and those who look after the project end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.policy import Action
from api.control.reconcilers.change import SessionUpdate
from api.control.reconcilers.failures import Failures
from api.resources.sessions import lifecycle
from api.resources.users import identities
from api.tables.sessions import Session, State
from common.sentence import Sentence

NO_RIGHT = "no-right"


async def due(db: AsyncSession, failures: Failures) -> Sequence[SessionUpdate]:
    """Return the ends of the sessions that do not run yet, and whose users may not submit to their projects now."""
    owners = await lifecycle.owners_before_start(db)
    known = await identities.of_users(db, {user_id for user_id, _ in owners})
    lost = []
    for user_id, project in owners:
        identity = known.get(user_id)
        if identity is None or not identity.may(Action.SESSION_SUBMIT, project=project, owner_id=user_id):
            lost.append((user_id, project.id))
    if not lost:
        return []
    return failures.judge(Sentence("to look at its user's rights"), await lifecycle.before_start_of(db, lost), _end)


def _end(session: Session) -> SessionUpdate:
    user, project = session.user_name, session.project.name
    return end(session, Sentence("{user} may not submit to {project} any more", user=user, project=project))


def end(session: Session, reason: str) -> SessionUpdate:
    """Return the end of a session that does not run yet, for a lack of rights."""
    values: dict[str, Any] = {"reason": reason, "cause": NO_RIGHT}
    if session.state is State.PENDING:
        return SessionUpdate(session, {**values, "state": State.FAILED, "position": 0})
    return SessionUpdate(session, {**values, "state": State.TERMINATING, "final_state": State.FAILED})
