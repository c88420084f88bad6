"""Callers: who an API key or a cookie stands for; one query, for every request asks it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, FromClause, Row, Select, and_, bindparam, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import KeyScope
from api.database import among
from api.tables.api_keys import ApiKey
from api.tables.logins import AppLogin, Login
from api.tables.projects import Membership, ProjectRole
from api.tables.users import Language, User
from common.app_addresses import AppName

USED_EVERY = timedelta(minutes=1)
"""How old the note of the last use may be: not every request writes."""

# Tables, not classes, and statements that are made once: building one takes longer than the database does.
_users, _keys, _logins, _memberships = (model.__table__ for model in (User, ApiKey, Login, Membership))


def _callers(table: FromClause, found: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Return the query of users with what is found to stand for them; a user's projects come with it, a row each."""
    joined = table.join(_users, table.c.user_id == _users.c.id)
    joined = joined.outerjoin(_memberships, _memberships.c.user_id == _users.c.id)
    key = (table.c.scope, table.c.expires_at) if table is _keys else (literal(KeyScope.ALL), literal(None))
    caller = (_users.c.id, _users.c.name, _users.c.role, _users.c.domain, _users.c.must_change_password)
    key = (*key, _users.c.language)
    membership = (_memberships.c.project_id, _memberships.c.role.label("project_role"))
    columns = (*caller, table.c.id, table.c.used_at, *key, *membership)
    return select(*columns).select_from(joined).where(found, _users.c.disabled.is_(False))


_key_holds = or_(_keys.c.expires_at.is_(None), _keys.c.expires_at > bindparam("at"))
_login_holds = and_(
    _logins.c.expires_at > bindparam("at"), or_(_logins.c.used_at.is_(None), _logins.c.used_at > bindparam("since"))
)
_BY_KEY = _callers(_keys, _keys.c.fingerprint == bindparam("fingerprint")).where(_key_holds)
_BY_COOKIE = _callers(_logins, _logins.c.fingerprint == bindparam("fingerprint")).where(_login_holds)
_of_app = select(AppLogin.login_id).where(
    AppLogin.fingerprint == bindparam("fingerprint"),
    AppLogin.session_id == bindparam("session_id"),
    AppLogin.port == bindparam("port"),
    or_(AppLogin.expires_at.is_(None), AppLogin.expires_at > bindparam("at")),
)
_BY_APP_COOKIE = _callers(_logins, _logins.c.id.in_(_of_app)).where(_login_holds)


@dataclass(frozen=True)
class KnownCaller:
    """A caller as the database knows it. `table` and `row_id` are the key or login used, noted last at `used_at`.

    `key_ends_at` is the end of the key; None for one without, and for a login. `language` is what the account asks for.
    """

    identity: Identity
    must_change_password: bool
    table: type[ApiKey] | type[Login]
    row_id: UUID
    used_at: datetime | None
    key_ends_at: datetime | None
    language: Language | None = None

    @property
    def key_id(self) -> UUID | None:
        """The id of the key; None for a login."""
        return self.row_id if self.table is ApiKey else None

    @property
    def name(self) -> str:
        """What tells the key or the login from all others, and says nothing of its secret."""
        return f"{self.table.__tablename__}:{self.row_id}"

    def is_noted(self, at: datetime) -> bool:
        """Return whether the last use is noted well enough."""
        return self.used_at is not None and at - self.used_at < USED_EVERY


async def by_key(db: AsyncSession, fingerprint: str, at: datetime) -> KnownCaller | None:
    """Return who a key stands for at a moment."""
    rows = (await db.execute(_BY_KEY, {"fingerprint": fingerprint, "at": at})).all()
    return _read(rows, ApiKey) if rows else None


async def by_cookie(db: AsyncSession, fingerprint: str, at: datetime, idle_s: int) -> KnownCaller | None:
    """Return who a login stands for at a moment; not for one that was not used for `idle_s`."""
    since = at - timedelta(seconds=idle_s)
    rows = (await db.execute(_BY_COOKIE, {"fingerprint": fingerprint, "at": at, "since": since})).all()
    return _read(rows, Login) if rows else None


async def by_app_cookie(
    db: AsyncSession, fingerprint: str, app: AppName, at: datetime, idle_s: int
) -> KnownCaller | None:
    """Return who a login at an app with a name of its own stands for: it is worth as much as the one at the console."""
    found = {"fingerprint": fingerprint, "session_id": app.session_id, "port": app.port}
    since = at - timedelta(seconds=idle_s)
    rows = (await db.execute(_BY_APP_COOKIE, {**found, "at": at, "since": since})).all()
    return _read(rows, Login) if rows else None


async def by_names(db: AsyncSession, names: Collection[str], at: datetime, idle_s: int) -> dict[str, KnownCaller]:
    """Return who the keys and logins of some names stand for at a moment, without those that hold no more."""
    found: dict[str, KnownCaller] = {}
    for kind, holds in ((ApiKey, _key_holds), (Login, _login_holds)):
        ids = [id_ for name in names if (id_ := _id_of(name, kind))]
        if not ids:
            continue
        query = _callers(kind.__table__, among(kind.id, ids)).where(holds)
        rows = await db.execute(query, {"at": at, "since": at - timedelta(seconds=idle_s)})
        by_row: defaultdict[UUID, list[Row[*tuple[Any, ...]]]] = defaultdict(list)
        for row in rows:
            by_row[row[5]].append(row)
        found |= {(known := _read(of_one, kind)).name: known for of_one in by_row.values()}
    return found


async def note_use(db: AsyncSession, known: KnownCaller, at: datetime) -> None:
    """Note that a key or a login was used, unless another request has just done so."""
    table = known.table
    stale = or_(table.used_at.is_(None), table.used_at <= at - USED_EVERY)
    await db.execute(update(table).where(table.id == known.row_id, stale).values(used_at=at))


def _id_of(name: str, table: type[ApiKey] | type[Login]) -> UUID | None:
    kind, _, id_ = name.partition(":")
    try:
        return UUID(id_) if kind == table.__tablename__ else None
    except ValueError:
        return None


def _read(rows: Sequence[Row[*tuple[Any, ...]]], table: type[ApiKey] | type[Login]) -> KnownCaller:
    user_id, name, role, domain, must_change, row_id, used_at, scope, ends_at, language, *_ = rows[0]
    projects = {id_: project_role for *_, id_, project_role in rows if id_ is not None}
    identity = Identity(
        user_id,
        name,
        role,
        domain,
        manages=frozenset(id_ for id_, project_role in projects.items() if project_role is ProjectRole.MANAGER),
        member_of=frozenset(projects),
        key=KeyScope(scope),
    )
    return KnownCaller(identity, must_change, table, row_id, used_at, ends_at, language)
