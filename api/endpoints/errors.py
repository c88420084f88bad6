"""Errors of the API: what it answers where there is no success, and how its document describes that."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import psycopg
import structlog
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import IntegrityError as DatabaseIntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from api.endpoints import outages
from common import refusals
from common.problem import MEDIA_TYPE
from common.refusals import refuse
from common.request_id import HEADER
from common.sentence import Sentence

log = structlog.get_logger()

_DOCS = "/docs"


class ProblemItem(BaseModel):
    """One thing that is wrong, why, and what to do; at most one of `pointer`, `parameter` and `where` is there."""

    detail: str = Field(description="What is wrong.")
    hint: str = Field(description="What to do about it; may be empty.")
    pointer: str | None = Field(default=None, description="JSON pointer (RFC 6901) into the body that was sent.")
    parameter: str | None = Field(default=None, description="Name of a parameter of the path, the query or a header.")
    where: str | None = Field(default=None, description="What else it is about, such as a program on a node.")


class ProblemDetails(BaseModel):
    """Body of every answer that is not a success (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="All that is wrong, as one text for people.")
    request_id: str = Field(description="Names this request in the site's logs.")
    errors: list[ProblemItem]


def _described(description: str) -> dict[str, Any]:
    header = {"description": "Names this request in the site's logs.", "schema": {"type": "string"}}
    return {"model": ProblemDetails, "description": description, "headers": {HEADER: header}}


RESPONSES: dict[int | str, dict[str, Any]] = {
    401: _described("Not signed in"),
    403: _described("Not allowed"),
    404: _described("Unknown, or not visible to the caller"),
    409: _described("Contradicts the present state"),
    413: _described("Larger than the caller may send; nothing was looked at"),
    422: _described("Not valid; nothing was changed"),
    429: _described("Tried too often; the header Retry-After says when to try again"),
    503: _described("Something that the API needs does not answer, or has no room"),
}


def install(app: FastAPI) -> None:
    """Make the application answer every kind of error in our shape, and describe it."""
    refusals.install(app, "the API")
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DatabaseIntegrityError, _constraint)
    app.add_exception_handler(OperationalError, _database)
    app.add_exception_handler(InternalError, _database)
    app.add_exception_handler(PoolTimeoutError, _database)


def described(document: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document with the media type of errors, in place of the success's that FastAPI gives them."""
    for methods in document["paths"].values():
        for operation in methods.values():
            for status in RESPONSES:
                content = operation["responses"][str(status)]["content"]
                operation["responses"][str(status)]["content"] = {MEDIA_TYPE: next(iter(content.values()))}
    return document


def status_of(error: HTTPException | SQLAlchemyError) -> int:
    """Return the status of the answer to an error that is none of ours."""
    if isinstance(error, HTTPException):
        return 422 if error.status_code == 400 else error.status_code
    cause = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(error, DatabaseIntegrityError) or isinstance(cause, psycopg.errors.DeadlockDetected):
        return 409
    is_read_only = isinstance(cause, psycopg.errors.ReadOnlySqlTransaction)
    return 503 if is_read_only or isinstance(error, (OperationalError, PoolTimeoutError)) else 500


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    if error.status_code == 400:
        return refuse(status_of(error), str(error.detail), "send well-formed JSON")
    known = (Sentence("Not Found"), Sentence("Method Not Allowed"))
    hints = {
        404: Sentence("see {address} for what exists", address=_DOCS),
        405: Sentence("see {address} for the methods of this path", address=_DOCS),
        413: Sentence("send less at a time"),
    }
    reason = str(error.detail or HTTPStatus(error.status_code).phrase)
    reason = next((sentence for sentence in known if sentence == reason), reason)
    said, hint = map(refusals.say_to(request), (reason, hints.get(error.status_code, "")))
    return refuse(error.status_code, said, hint, dict(error.headers or {}))


async def _constraint(request: Request, error: Exception) -> JSONResponse:
    """Two requests at once wanted what only one can have; the database decided."""
    log.info("constraint", error=str(error))
    texts = Sentence("another request has just changed this"), Sentence("look at the present state and try again")
    reason, hint = map(refusals.say_to(request), texts)
    return refuse(409, reason, hint)


async def _database(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SQLAlchemyError)  # noqa: S101
    if (status := status_of(error)) == 409:
        return await _constraint(request, error)
    if status == 500:
        raise error
    log.error("database", error=str(error))
    reason, hint = map(refusals.say_to(request), outages.reason_and_hint(error))
    return refuse(status, reason, hint)
