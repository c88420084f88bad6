"""Errors of the API: every answer that is not a success has the same shape, with field, reason and hint."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError as DatabaseIntegrityError
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from common.document import dotted
from common.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    PenstockError,
    Problem,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)

log = structlog.get_logger()

STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (InputError, 422),
    (UnauthenticatedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ThrottledError, 429),
    (UnavailableError, 503),
)
HINTS = {
    "extra_forbidden": "remove the key, or correct its spelling",
    "missing": "add it",
    "json_invalid": "send well-formed JSON",
}


class ErrorItem(BaseModel):
    """One thing that is wrong: the field, why, and what to do."""

    where: str
    reason: str
    hint: str


class ErrorBody(BaseModel):
    """Body of every answer that is not a success."""

    errors: list[ErrorItem]


RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorBody, "description": "Not signed in"},
    403: {"model": ErrorBody, "description": "Not allowed"},
    404: {"model": ErrorBody, "description": "Unknown, or not visible to the caller"},
    409: {"model": ErrorBody, "description": "Contradicts the present state"},
    422: {"model": ErrorBody, "description": "Not valid; nothing was changed"},
    429: {"model": ErrorBody, "description": "Tried too often; the header Retry-After says when to try again"},
}


def answer(status: int, problems: Sequence[Problem], headers: dict[str, str] | None = None) -> JSONResponse:
    """Return problems as an answer."""
    body = ErrorBody(errors=[ErrorItem(where=p.where, reason=p.reason, hint=p.hint) for p in problems])
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


def status_of(error: PenstockError) -> int:
    """Return the HTTP status that says what kind of error it is."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def install(app: FastAPI) -> None:
    """Make the application answer every kind of error in our shape."""
    app.add_exception_handler(PenstockError, _penstock)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(WebSocketRequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DatabaseIntegrityError, _constraint)
    app.add_exception_handler(OperationalError, _database)
    app.add_exception_handler(PoolTimeoutError, _database)
    app.add_exception_handler(Exception, _unexpected)


def _penstock(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PenstockError)  # noqa: S101 -- registered for this class only
    return answer(status_of(error), error.problems, _headers(error))


def _headers(error: PenstockError) -> dict[str, str]:
    if isinstance(error, UnauthenticatedError):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, ThrottledError):
        return {"Retry-After": str(error.retry_after_s)}
    return {}


def _validation(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)  # noqa: S101
    return answer(422, [_problem(item) for item in error.errors()])


def _problem(item: dict[str, Any]) -> Problem:
    kind = str(item["type"])
    location = tuple(item["loc"])
    if kind == "json_invalid":
        return Problem("", f"the body is not JSON: {item['ctx']['error']}", HINTS[kind])
    reason = str(item["msg"]).removeprefix("Value error, ")
    reason = {"Extra inputs are not permitted": "unknown key", "Field required": "this is required"}.get(reason, reason)
    # The first part only says whether the field stood in the body, the path or the query.
    return Problem(dotted(location[1:]), reason, HINTS.get(kind, "correct the value"))


def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    hints = {404: "see /docs for what exists", 405: "see /docs for the methods of this path"}
    if error.status_code == 400:
        return answer(422, [Problem("", str(error.detail), HINTS["json_invalid"])])
    reason = str(error.detail or HTTPStatus(error.status_code).phrase)
    return answer(error.status_code, [Problem("", reason, hints.get(error.status_code, ""))], dict(error.headers or {}))


def _constraint(_request: Request, error: Exception) -> JSONResponse:
    """Two requests at once wanted what only one can have; the database decided."""
    log.info("constraint", error=str(error))
    return answer(
        409, [Problem("", "another request has just changed this", "look at the present state and try again")]
    )


def _database(_request: Request, error: Exception) -> JSONResponse:
    log.error("database", error=str(error))
    return answer(
        503, [Problem("", "the database does not answer", "try again; if it stays so, tell the administrator")]
    )


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected", path=request.url.path, exc_info=error)
    return answer(500, [Problem("", "the API failed unexpectedly; its log says why", "tell the administrator")])
