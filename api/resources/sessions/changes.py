"""Changes of sessions: guarded by the revision that was read, followed by accounting, any number in few statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import Update, and_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.types import TypeEngine

from api.clock import now
from api.database import among, parameters, rows_told
from api.resources.accounting import service as accounting
from api.resources.sessions import repository
from api.tables.sessions import ENDED, Container, Session
from common.sentence import parts_of

Noted = Mapping[int, Mapping[str, Any]]
"""What is new of containers, by rank."""


class Versioned(Protocol):
    """A session, as far as changing it goes: which one, and the revision of it that was read."""

    @property
    def id(self) -> UUID:
        """Its id."""

    @property
    def revision(self) -> int:
        """Its lock token."""


@dataclass(frozen=True)
class Read:
    """A session of which no more was read."""

    id: UUID
    revision: int


@dataclass(frozen=True)
class Change:
    """New values of a session as it was read; `noted` are those of containers of this `attempt`."""

    session: Versioned
    values: Mapping[str, Any]
    noted: Noted = field(default_factory=dict)
    attempt: int = 0

    @classmethod
    def of(cls, session: Session, values: Mapping[str, Any], noted: Noted | None = None) -> Change:
        """Return a change of a session and its containers."""
        return cls(session, completed(values), noted or {}, session.attempt)

    def take_over(self) -> None:
        """Let the session that was read be as it is written now, so that it need not be read again."""
        session = self.session
        if not isinstance(session, Session):
            return
        values = {**self.values, "revision": session.revision + 1} if self.values else {}
        for name, value in values.items():
            set_committed_value(session, name, value)
        for container in session.containers if self.noted else ():
            for name, value in self.noted.get(container.rank, {}).items():
                set_committed_value(container, name, value)


def completed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return new values with the moment since when a new state is, and what a new reason is made of."""
    found = {"since": now(), **values} if "state" in values else values
    return {**found, "reason_parts": parts_of(values["reason"])} if "reason" in values else found


async def write(db: AsyncSession, changes: Sequence[Change]) -> set[UUID]:
    """Write changes of different sessions; returns which nobody else has changed since they were read.

    Of those that have ended the addresses at the edge are free again.
    """
    written = await _update(db, changes)
    followed = {change.session.id: change.values for change in changes if change.session.id in written}
    await accounting.follow(db, followed)
    ended = [id_ for id_, values in followed.items() if values.get("state") in ENDED and "finished_at" in values]
    if ended:
        await repository.remove_services(db, ended)
    return written


async def _update(db: AsyncSession, changes: Sequence[Change]) -> set[UUID]:
    """Change sessions that still have the revisions we have read, and their containers; returns which had.

    Equal kinds of changes are one statement, and rows are locked in the order of their ids, so that two who change
    many never wait for each other.
    """
    kinds: defaultdict[frozenset[str], list[Change]] = defaultdict(list)
    for change in changes:
        kinds[frozenset(change.values)].append(change)
    if len(kinds) > 1:
        ids = [change.session.id for change in changes]
        await db.execute(select(Session.id).where(among(Session.id, ids)).order_by(Session.id).with_for_update())
    written = {change.session.id for change in kinds.pop(frozenset(), [])}
    for names, equal in kinds.items():
        written |= await _update_sessions(db, sorted(names), equal)
    await _update_containers(db, [change for change in changes if change.session.id in written])
    return written


async def _update_sessions(db: AsyncSession, names: Sequence[str], changes: Sequence[Change]) -> set[UUID]:
    values: dict[str, list[Any]] = {
        "id": [change.session.id for change in changes],
        "read": [change.session.revision for change in changes],
        **{name: [change.values[name] for change in changes] for name in names},
    }
    return set(await db.scalars(_session_update(tuple(names)), parameters(values)))


@cache
def _session_update(names: tuple[str, ...]) -> ReturningUpdate[UUID]:
    types = {"id": Session.id.type, "read": Session.revision.type, **{name: _type(Session, name) for name in names}}
    given = rows_told(types)
    as_read = and_(Session.id == given.c.id, Session.revision == given.c.read)
    locked = select(Session.id).join(given, as_read).order_by(Session.id).with_for_update(of=Session).cte("locked")
    query = update(Session).where(Session.id == locked.c.id, Session.id == given.c.id)
    query = query.values({name: given.c[name] for name in names} | {"revision": Session.revision + 1})
    return query.returning(Session.id).execution_options(synchronize_session=False)


async def _update_containers(db: AsyncSession, changes: Sequence[Change]) -> None:
    """Change what is known of containers, unless their sessions have come to another attempt since."""
    kinds: defaultdict[frozenset[str], list[tuple[Change, int]]] = defaultdict(list)
    for change in changes:
        for rank, values in change.noted.items():
            if values:
                kinds[frozenset(values)].append((change, rank))
    for names, equal in kinds.items():
        values = {
            "session_id": [change.session.id for change, _ in equal],
            "attempt": [change.attempt for change, _ in equal],
            "rank": [rank for _, rank in equal],
            **{name: [change.noted[rank][name] for change, rank in equal] for name in names},
        }
        await db.execute(_container_update(tuple(sorted(names))), parameters(values))


@cache
def _container_update(names: tuple[str, ...]) -> Update:
    types = {"session_id": Session.id.type, "attempt": Session.attempt.type, "rank": Container.rank.type}
    given = rows_told(types | {name: _type(Container, name) for name in names})
    key = (Container.session_id, Container.rank)
    meant = and_(Container.session_id == given.c.session_id, Container.rank == given.c.rank)
    same = and_(Session.id == Container.session_id, Session.attempt == given.c.attempt)
    found = select(*key).join(given, meant).join(Session, same).order_by(*key)
    locked = found.with_for_update(of=Container).cte("locked")
    query = update(Container).where(meant, key[0] == locked.c.session_id, key[1] == locked.c.rank)
    query = query.values({name: given.c[name] for name in names})
    return query.execution_options(synchronize_session=False)


def _type(table: type[Session | Container], name: str) -> TypeEngine[Any]:
    found: TypeEngine[Any] = getattr(table, name).type
    return found
