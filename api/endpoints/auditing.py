"""Auditing of requests: who changes something or is refused leaves a line, in the transaction of the change itself."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.clock import now
from api.database import Database
from api.endpoints.access import PREFIX, SAFE_METHODS, action_of, is_for_agents
from api.resources.audit import service
from api.resources.logins.callers import KnownCaller
from common import request_id
from common.errors import PenstockError

log = structlog.get_logger()

READS = frozenset({Action.AUDIT_READ, Action.AUDIT_OVERSEE})
"""Actions that change nothing, and are told all the same."""
_ATTEMPT = "penstock.attempt"
OF_A_MINUTE = 30
"""So many attempts that fail are told of one user or address; of the others how many there were."""
KNOWN = 4096
"""Of so many users and addresses at a time."""


@dataclass
class Attempt:
    """A request that is told. `user` is the name that somebody signs in with, who is not known yet."""

    connection: HTTPConnection
    endpoint: Callable[..., Any]
    user: str = ""
    recorded: bool = False
    failed: bool = False

    def entry(self, result: str, status: int, reason: str = "") -> dict[str, Any]:
        """Return the line of the log."""
        known: KnownCaller | None = getattr(self.connection.state, "known", None)
        path, query = self.connection.url.path.removeprefix(PREFIX).strip("/"), self.connection.query_params
        action = action_of(self.endpoint)
        return {
            "time": f"{now():%FT%T.%fZ}",
            "user": known.identity.name if known else self.user,
            "role": known.identity.role if known else "",
            "domain": known.identity.domain if known else None,
            "credential": known.name if known else "",
            "address": self.connection.client.host if self.connection.client else "",
            "action": action.name.lower() if action else self.endpoint.__name__,
            "method": self.connection.scope.get("method", "WEBSOCKET"),
            "object": path,
            "project": query.get("project"),
            "result": result,
            "status": status,
            "reason": reason,
            "request": request_id.current(),
        }


@dataclass
class Failures:
    """How many attempts of each user or address failed in the last minute: who floods the log fills no disk."""

    _seen: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def left_out(self, who: str) -> int | None:
        """Take note of one more; return how many were left out before it, or None where this one is left out too."""
        moment = time.monotonic()
        began, count = self._seen.pop(who, (moment, 0))
        before = 0
        if moment - began >= 60:
            began, before, count = moment, max(count - OF_A_MINUTE, 0), 0
        self._seen[who] = (began, count + 1)
        while len(self._seen) > KNOWN:
            self._seen.popitem(last=False)
        return before if count < OF_A_MINUTE else None


def attempt_of(connection: HTTPConnection) -> Attempt | None:
    """Return the attempt that a request is, if it is told."""
    attempt: Attempt | None = connection.scope.get(_ATTEMPT)
    return attempt


@asynccontextmanager
async def attempted(connection: HTTPConnection, endpoint: Callable[..., Any]) -> AsyncIterator[None]:
    """Tell it where a request fails before or in its endpoint."""
    if is_for_agents(endpoint) or not service.is_on(connection.app.state.settings):
        yield
        return
    attempt = attempt_of(connection) or Attempt(connection, endpoint)
    if connection.scope.get("method") not in SAFE_METHODS or action_of(endpoint) in READS:
        connection.scope[_ATTEMPT] = attempt
    try:
        yield
    except Exception as error:
        await _failed(attempt, error)
        raise


async def concluded(connection: HTTPConnection) -> AsyncIterator[None]:
    """Tell what comes of a request, unless its own transaction has done so.

    It is the first dependency of all and so the last to end: it sees it where a transaction cannot be committed.
    """
    try:
        yield
    except Exception as error:
        if attempt := attempt_of(connection):
            await _failed(attempt, error)
        raise
    if (attempt := attempt_of(connection)) and not (attempt.recorded or attempt.failed):
        database: Database = connection.app.state.database
        async with database.transaction() as db:
            await record(db, connection)


async def begin(db: AsyncSession, connection: HTTPConnection) -> None:
    """Let a transaction note what it changes, where the request is told."""
    if attempt_of(connection):
        await service.begin(db)


async def record(db: AsyncSession, connection: HTTPConnection, **more: Any) -> None:
    """Tell a success in the transaction that makes it one."""
    if (attempt := attempt_of(connection)) and not attempt.recorded:
        await service.add(db, attempt.entry("done", HTTPStatus.OK) | more, changes=True)
        attempt.recorded = True


async def _failed(attempt: Attempt, error: Exception) -> None:
    status, reason = _status(error), _reason(error)
    refused = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    if attempt.failed or (attempt_of(attempt.connection) is None and status != HTTPStatus.FORBIDDEN):
        return
    attempt.failed = True
    entry = attempt.entry("refused" if refused else "failed", status, reason)
    failures: Failures = attempt.connection.app.state.failed_attempts
    # the name in an attempt to sign in is whatever its sender likes
    left_out = failures.left_out(str(entry["user"] if entry["role"] else entry["address"]))
    if left_out is None:
        return
    database: Database = attempt.connection.app.state.database
    try:
        async with database.transaction() as db:
            await service.add(db, entry | ({"left_out": left_out} if left_out else {}), changes=False)
    except Exception:
        log.exception("a failed attempt is not in the audit log", **{key: entry[key] for key in ("user", "action")})


def _status(error: Exception) -> int:
    if isinstance(error, PenstockError):
        return error.http_status
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RequestValidationError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return HTTPStatus.CONFLICT if isinstance(error, IntegrityError) else HTTPStatus.INTERNAL_SERVER_ERROR


def _reason(error: Exception) -> str:
    """Return why, without what was sent: where a body is wrong, and not what it says there."""
    if isinstance(error, PenstockError):
        return "; ".join(problem.reason for problem in error.problems[:3])
    if isinstance(error, RequestValidationError):
        fields = [".".join(str(part) for part in one["loc"][1:]) for one in error.errors()[:5]]
        return f"not valid: {', '.join(fields)}"
    return type(error).__name__
