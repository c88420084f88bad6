"""Auditing of requests: who changes something or is refused leaves a line, in the transaction of the change itself."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from uuid import UUID

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.clock import now
from api.database import Database
from api.endpoints import errors
from api.endpoints.access import (
    PREFIX,
    SAFE_METHODS,
    action_of,
    certificate_of,
    is_for_agents,
    is_for_the_edge,
    shown_cookie,
    shown_key,
)
from api.endpoints.change_rate import ChangeRate, DryRunRate
from api.endpoints.failed_attempts import FailedAttempts
from api.resources.api_keys.service import PREFIX_LENGTH
from api.resources.audit import service
from api.resources.logins.callers import KnownCaller
from api.resources.schemas import is_name
from api.tables.logins import Login
from common import request_id
from common.errors import PenstockError

log = structlog.get_logger()

READS = frozenset({Action.AUDIT_READ, Action.AUDIT_OVERSEE, Action.LOGS_READ})
"""Actions that change nothing, and are told all the same."""
DRY_RUNS = frozenset({Action.SESSION_DRY_RUN})
"""Actions that change nothing, though what they are about is posted: they are told where they are refused alone."""
NOT_VALID = (RequestValidationError, WebSocketRequestValidationError)
AWAY = (OperationalError, InterfaceError, PoolTimeoutError, OSError)
"""What is raised where the database does not answer."""
_TOLD = "penstock.told"
_SECRET = re.compile(r"psk_[A-Za-z0-9_-]+")
"""An API key, which somebody may send where its id belongs."""
OF_A_MINUTE = 30
"""So many attempts that fail at an action are told of one user or address; of the others how many there were."""
OF_PROGRAMS = 1
"""The same of agents, and of pages of apps at the edge: programs that are refused go on asking, day and night."""
LOOK_S = 5.0
"""How often is looked whose minute is over."""


@dataclass
class ToldRequest:
    """A request that is told where it is refused, and where it `changes` something, whatever comes of it.

    `status` is that of its answer where all goes well, `more` what its lines say in place of what it named, and `user`
    the name that somebody signs in with, who is not known yet. Once it is `concluding`, what comes of it is told when
    its transaction has ended, too.
    """

    connection: HTTPConnection
    endpoint: Callable[..., Any]
    status: int = HTTPStatus.OK
    changes: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    concluding: bool = False
    user: str = ""
    action: Action | None = None
    object: str = ""
    recorded: bool = False
    failed: bool = False

    def done(self) -> dict[str, Any]:
        """Return the line of the log where all goes well."""
        return self.entry("done", self.status)

    def entry(self, result: str, status: int, reason: str = "") -> dict[str, Any]:
        """Return the line of the log."""
        known: KnownCaller | None = getattr(self.connection.state, "known", None)
        # not `url.path`, of which parsing has taken new lines away
        object_ = self.object or str(self.connection.scope["path"]).removeprefix(PREFIX).strip("/")
        action = self.action or action_of(self.endpoint)
        return {
            "time": f"{now():%FT%T.%fZ}",
            "user": known.identity.name if known else self.user,
            "role": known.identity.role if known else "",
            "domain": known.identity.domain if known else None,
            "credential": known.name if known else self._shown(),
            "address": self.connection.client.host if self.connection.client else "",
            "action": action.name.lower() if action else self.endpoint.__name__,
            "method": self.connection.scope.get("method", "WEBSOCKET"),
            "object": _SECRET.sub("psk_…", object_),
            "project": self._project(),
            "result": result,
            "status": status,
            "reason": reason,
            "request": request_id.current(),
            **self.more,
        }

    @property
    def of_a_program(self) -> bool:
        """Whether it comes from a program that asks by itself."""
        return is_for_agents(self.endpoint) or is_for_the_edge(self.endpoint)

    def is_told(self, status: int) -> bool:
        """Return whether it is told when it fails: each change, and each look at what is not for who asks.

        Of what somebody may not see it is said that it is not there. Who shows nothing that could let him in is a
        browser before its login; that of a page of an app which is left open ends at some time, and the page asks on.
        """
        if self.changes or status == HTTPStatus.FORBIDDEN:
            return True
        if status == HTTPStatus.NOT_FOUND:
            return hasattr(self.connection.state, "known")
        shown = "authorization" in self.connection.headers or (
            shown_cookie(self.connection) and not is_for_the_edge(self.endpoint)
        )
        return status == HTTPStatus.UNAUTHORIZED and bool(shown or is_for_agents(self.endpoint))

    def _shown(self) -> str:
        """Return what tells apart with what somebody tries to be let in, as far as lists of keys show it."""
        if is_for_agents(self.endpoint) and (name := certificate_of(self.connection)):
            return f"certificate:{name}"
        key = shown_key(self.connection)
        return f"api_keys:{key[:PREFIX_LENGTH]}…" if _SECRET.fullmatch(key) and len(key) > 2 * PREFIX_LENGTH else ""

    def _project(self) -> str | None:
        """Return the project that a request names, where its endpoint asks for one: else it is what somebody likes."""
        named = self.connection.query_params.get("project", "")
        return named if is_name(named) and "project" in inspect.signature(self.endpoint).parameters else None


def told_request(connection: HTTPConnection) -> ToldRequest | None:
    """Return a request as it is told, if it is, whatever comes of it."""
    told: ToldRequest | None = connection.scope.get(_TOLD)
    return told if told and told.changes else None


@asynccontextmanager
async def attempted(
    connection: HTTPConnection, endpoint: Callable[..., Any], status: int | None = None
) -> AsyncIterator[None]:
    """Tell it where a request fails before or in its endpoint, or with `status` where it is a success.

    A failure may become another one while its transaction ends, as where the database is lost: that is answered, and
    `concluded` sees it.
    """
    if not service.is_on(connection.app.state.settings):
        yield
        return
    told: ToldRequest = connection.scope.setdefault(_TOLD, ToldRequest(connection, endpoint, status or HTTPStatus.OK))
    told.changes = _changes(connection, endpoint)
    try:
        yield
    except Exception as error:
        if not (told.concluding and told.changes):
            await _failed(told, error)
        raise


def _changes(connection: HTTPConnection, endpoint: Callable[..., Any]) -> bool:
    wanted = action_of(endpoint)
    changes = connection.scope.get("method") not in SAFE_METHODS and wanted not in DRY_RUNS
    return (changes and not is_for_agents(endpoint)) or wanted in READS


def slow_down(connection: HTTPConnection, endpoint: Callable[..., Any]) -> None:
    """Refuse one more change, or dry run, of an account that asks for them without end; raises ThrottledError."""
    known: KnownCaller | None = getattr(connection.state, "known", None)
    if known is None:
        return
    signed_in = known.table is Login
    if action_of(endpoint) in DRY_RUNS:
        rate: DryRunRate = connection.app.state.dry_run_rate
        rate.take(known.identity.id, signed_in=signed_in)
    elif told_request(connection):
        count(connection, known.identity.id, signed_in=signed_in)


def count(connection: HTTPConnection, account: UUID, *, signed_in: bool) -> None:
    """Count a change of an account, where changes are told; raises ThrottledError for one too many."""
    rate: ChangeRate = connection.app.state.change_rate
    if service.is_on(connection.app.state.settings):
        rate.take(account, signed_in=signed_in)


async def concluded(connection: HTTPConnection) -> AsyncIterator[None]:
    """Tell what comes of a request, unless its own transaction has done so.

    It is the first dependency of all and so the last to end: it sees it where a transaction cannot be committed.
    """
    # what is asked of a WebSocket that is open is answered there, and is told at once
    if (told := told_request(connection)) and connection.scope["type"] == "http":
        told.concluding = True
    try:
        yield
    except Exception as error:
        if told := told_request(connection):
            await _failed(told, error)
        raise
    if (told := told_request(connection)) and not (told.recorded or told.failed):
        database: Database = connection.app.state.database
        async with database.transaction() as db:
            await record(db, connection)


async def begin(db: AsyncSession, connection: HTTPConnection) -> None:
    """Open the transaction that makes a request a success with the line that says so, where the request is told.

    The database notes what it changes from then on.
    """
    if told := told_request(connection):
        await service.begin(db, told.done())
        told.recorded = True


async def answers(db: AsyncSession, connection: HTTPConnection, status: int) -> None:
    """Tell another status of a success than its endpoint's, in the transaction that began with the line."""
    told = told_request(connection)
    if told and told.recorded:
        await service.set_status(db, status)


def needs(connection: HTTPConnection, wanted: Action) -> None:
    """Tell a request by the action that its body needs, where that is another one than its endpoint's.

    Call it before the transaction, which begins with the line.
    """
    if told := told_request(connection):
        told.action = wanted


def about(connection: HTTPConnection, name: str) -> None:
    """Tell a request as one about an object such as `repairs/5-A/runs`, where its path does not name it.

    Call it before the transaction, which begins with the line.
    """
    if told := connection.scope.get(_TOLD):
        told.object = name


def told_as(name: str) -> Callable[[HTTPConnection], Awaitable[None]]:
    """Return the dependency that tells a request as one about `name`, with parts of its path in braces."""

    async def tell(connection: HTTPConnection) -> None:
        about(connection, name.format_map(connection.path_params))

    return tell


async def record(db: AsyncSession, connection: HTTPConnection, **more: Any) -> None:
    """Tell a success in the transaction that makes it one; a failure that follows tells `more`, too."""
    if (told := told_request(connection)) and not told.recorded:
        told.more = more
        await service.add(db, told.done(), changes=True)
        told.recorded = True


async def _failed(told: ToldRequest, error: Exception) -> None:
    status, reason = _status(error), _reason(error)
    refused = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    if told.failed or not told.is_told(status):
        return
    told.failed = True
    # as it can be written, for what is kept of it until its minute is over as well
    entry = service.storable(told.entry("refused" if refused else "failed", status, reason))
    failures: FailedAttempts = told.connection.app.state.failed_attempts
    if failures.is_told(entry, OF_PROGRAMS if told.of_a_program else OF_A_MINUTE):
        await _tell(told.connection.app, entry)


async def watch_left_out(app: FastAPI) -> None:
    """Tell what was left out whenever a minute ends, and at the end of it all."""
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            await tell_left_out(app)
    finally:
        await tell_left_out(app, all_=True)


async def tell_left_out(app: FastAPI, *, all_: bool = False) -> None:
    """Tell how many attempts were left out in each minute that is over, or in all.

    Where the database is away they are told the next time.
    """
    failures: FailedAttempts = app.state.failed_attempts
    for entry in failures.left_out(all_=all_):
        if not await _tell(app, entry):
            return


async def _tell(app: FastAPI, entry: dict[str, Any]) -> bool:
    """Put an attempt into the log; return whether the database has answered."""
    database: Database = app.state.database
    try:
        async with database.transaction() as db:
            await service.add(db, entry, changes=False)
    except Exception as error:
        log.exception("a failed attempt is not in the audit log", **{key: entry[key] for key in ("user", "action")})
        return not isinstance(error, AWAY)
    return True


def _status(error: Exception) -> int:
    if isinstance(error, PenstockError):
        return error.http_status
    if isinstance(error, NOT_VALID):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if isinstance(error, (HTTPException, SQLAlchemyError)):
        return errors.status_of(error)
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _reason(error: Exception) -> str:
    """Return why, without what was sent: where a body is wrong, and not what it says there."""
    if isinstance(error, PenstockError):
        return "; ".join(problem.reason for problem in error.problems[:3])
    if isinstance(error, NOT_VALID):
        return f"not valid: {', '.join(dict.fromkeys(_field(one) for one in error.errors()[:5]))}"
    return type(error).__name__


def _field(error: Mapping[str, Any]) -> str:
    """Return the field of ours that an error is in: a key below it, or one that nobody knows, is what somebody sent."""
    where, *fields = error["loc"]
    if error["type"] == "extra_forbidden" and len(fields) == 1:
        return "unknown key"
    # of what is no JSON the place is told where it ends to be
    return str(fields[0] if fields and error["type"] != "json_invalid" else where)
