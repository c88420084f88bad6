"""Access to sessions: the one rule of who sees a session, and so may do anything with it.

Endpoints, lists, apps at the edge, and what is said of a session to others all ask here. A session that somebody does
not see is for that person as one that there is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from api.auth.identity import Identity, ProjectRef, Reach
from api.auth.policy import Action
from api.tables.projects import Access


class SessionRef(Protocol):
    """A session, as far as access goes."""

    @property
    def access(self) -> Access:
        """Who sees it."""

    @property
    def user_id(self) -> UUID | None:
        """Its owner; None where that user is deleted."""


@dataclass(frozen=True)
class SessionReach:
    """Which sessions a caller sees, for queries: those within `any`, and of these the private ones within `private`."""

    any: Reach
    private: Reach


def sees(caller: Identity, session: SessionRef, project: ProjectRef) -> bool:
    """Return whether the caller sees a session of a project."""
    return may(caller, Action.SESSION_READ, session, project)


def may(caller: Identity, action: Action, session: SessionRef, project: ProjectRef) -> bool:
    """Return whether the caller sees a session of a project, and may do something with it."""
    needed = {Action.SESSION_READ, action}
    if session.access is Access.PRIVATE:
        needed.add(Action.SESSION_OVERSEE)
    return all(caller.may(each, project=project, owner_id=session.user_id) for each in needed)


def seen_by(caller: Identity) -> SessionReach:
    """Return which sessions the caller sees."""
    return SessionReach(caller.reach(Action.SESSION_READ), caller.reach(Action.SESSION_OVERSEE))
