"""Refusals of a FastAPI application: whatever goes wrong is answered as problem details."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from common import findings, problem, request_id
from common.errors import PenstockError, Problem, ThrottledError, UnauthenticatedError
from common.problem import Item
from common.sentence import Sentence

log = structlog.get_logger()

LISTED = 20
"""So many problems are told at most; of the others only how many there are."""


def install(app: FastAPI, who: str) -> None:
    """Make an application refuse in our form; `who` it is stands in the answer to an unexpected error."""
    app.add_exception_handler(PenstockError, _penstock)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(WebSocketRequestValidationError, _validation)
    app.add_exception_handler(Exception, partial(_unexpected, who=who))


def answer(
    status: int, items: Sequence[Item], headers: dict[str, str] | None = None, *, left_out: int = 0
) -> JSONResponse:
    """Return problems as an answer, and how many more there are."""
    more = [problem.item(Problem("", f"{left_out} more", "correct these first"))] if left_out else []
    body = problem.document(status, [*items, *more], request_id.current())
    return JSONResponse(body, status, headers, problem.MEDIA_TYPE)


def refuse(status: int, reason: str, hint: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return a problem of no field as an answer."""
    return answer(status, [problem.item(Problem("", reason, hint))], headers)


async def _penstock(connection: HTTPConnection, error: Exception) -> JSONResponse:
    assert isinstance(error, PenstockError)  # noqa: S101 -- registered for this class only
    fields, parameters = _fields(connection), {*connection.path_params, *connection.query_params}
    problems = [_said(one, connection) for one in error.problems[:LISTED]]
    items = [problem.item(one, fields, parameters) for one in problems]
    return answer(error.http_status, items, _headers(error), left_out=len(error.problems) - len(items))


def _fields(connection: HTTPConnection) -> Container[int | str]:
    """Return the fields that the body of such a request has."""
    body = getattr(connection.scope.get("route"), "body_field", None)
    fields: Container[int | str] = getattr(body.field_info.annotation, "model_fields", ()) if body else ()
    return fields


def _headers(error: PenstockError) -> dict[str, str]:
    if isinstance(error, UnauthenticatedError):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, ThrottledError):
        return {"Retry-After": str(error.retry_after_s)}
    return {}


async def _validation(connection: HTTPConnection, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)  # noqa: S101
    told = error.errors()
    items = [_item(one, connection) for one in told[:LISTED]]
    return answer(422, items, left_out=len(told) - len(items))


def say_to(connection: HTTPConnection) -> Callable[[str], str]:
    """Return how to say a text to whoever asked: a connection may keep in `say` of its state how to translate."""
    say: Callable[[str], str] = getattr(connection.state, "say", str)
    return say


def said_to(connection: HTTPConnection, error: PenstockError) -> str:
    """Return what is wrong as whoever asked reads it: a page in its language, a program with fields and hints."""
    if not hasattr(connection.state, "say"):
        return str(error)
    say = say_to(connection)
    texts = (
        Sentence("{first}; {second}", first=one.reason, second=one.hint) if one.hint else one.reason
        for one in error.problems
    )
    return "\n".join(map(say, texts))


def _said(told: Problem, connection: HTTPConnection) -> Problem:
    """Return a problem as whoever asked reads it."""
    say = say_to(connection)
    return Problem(told.where, say(told.reason), say(told.hint))


def _item(told: dict[str, Any], connection: HTTPConnection) -> Item:
    """Return what pydantic tells in our words; the first part of its location is where in the request it was."""
    source, *path = told["loc"]
    if told["type"] == "json_invalid":
        invalid = Problem("", f"the body is not JSON: {told['ctx']['error']}", "send well-formed JSON")
        return problem.in_body((), invalid)
    found = _said(Problem("", findings.reason(told), findings.hint(told)), connection)
    if source != "body":
        return problem.in_parameter(str(path[0]), found)
    # a key that is wrong has no place of its own in the body
    return problem.in_body(path[:-1] if path[-1:] == ["[key]"] else path, found)


async def _unexpected(connection: HTTPConnection, error: Exception, *, who: str) -> JSONResponse:
    log.error("unexpected", path=connection.url.path, exc_info=error)
    reason, hint = f"{who} failed unexpectedly; its log says why", "tell the administrator"
    # this answer is made before the middleware that names the request
    return refuse(500, reason, hint, request_id.headers())
