"""Problem details: how errors travel over HTTP (RFC 9457), written by API and agents, read by who called them.

Only the standard library is used: the command line starts with this.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from common.errors import PenstockError, Problem, kind_of
from common.places import dotted, from_dotted, from_pointer, pointer

MEDIA_TYPE = "application/problem+json"
MAX_CHARACTERS = 2000
"""So long is each text of a problem at most: what is quoted of a request may be as long as that."""

Item = dict[str, str]
"""One of `errors`: `detail`, `hint`, and at most one of `pointer`, `parameter` and `where` for what it is about."""


def item(problem: Problem, fields: Container[int | str] = (), parameters: Container[str] = ()) -> Item:
    """Return a problem as it travels.

    Its `where` becomes a `pointer` if it begins with one of the `fields` of the request's body, a `parameter` if it
    is one of the request's `parameters`, and stays what it is for all else.
    """
    path = from_dotted(problem.where)
    if path and path[0] in fields:
        return in_body(path, problem)
    if problem.where in parameters:
        return in_parameter(problem.where, problem)
    return _item(problem, where=problem.where) if problem.where else _item(problem)


def in_body(path: Sequence[int | str], problem: Problem) -> Item:
    """Return a problem of what stands at `path` of the request's body; the whole body for an empty path."""
    return _item(problem, pointer=pointer(path))


def in_parameter(name: str, problem: Problem) -> Item:
    """Return a problem of a parameter of the request's path, query or headers."""
    return _item(problem, parameter=name)


def document(status: int, items: Sequence[Item], request_id: str) -> dict[str, Any]:
    """Return problem details; `status` is the answer's, and `request_id` names the request in logs."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": "\n".join(str(_problem(one)) for one in items),
        "request_id": request_id,
        "errors": items,
    }


def read(status: int, content: bytes) -> PenstockError | None:
    """Return the error that an answer stands for; None where it says nothing that we can read.

    Where the other side failed, each hint names the request: its log has lines on it.
    """
    try:
        told = json.loads(content)
        problems = [_of_before(one) if "reason" in one else _problem(one) for one in told["errors"]]
        if status >= 500 and (request_id := told.get("request_id")):
            problems = [replace(one, hint=f"{one.hint} (request {request_id})".strip()) for one in problems]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return kind_of(status).of(problems) if problems else None


def _item(problem: Problem, **about: str) -> Item:
    told = {**about, "detail": problem.reason, "hint": problem.hint}
    return {name: _bounded(text) for name, text in told.items()}


def _bounded(text: str) -> str:
    """Return a text that is not too long, and that UTF-8 can encode."""
    cut = text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
    return cut.encode(errors="backslashreplace").decode()


def _problem(told: Item) -> Problem:
    place = dotted(from_pointer(told["pointer"])) if "pointer" in told else told.get("parameter", told.get("where", ""))
    return Problem(place, told["detail"], told["hint"])


def _of_before(told: Item) -> Problem:
    """Read what API and agents of release 0.1.0 answer."""
    return Problem(told["where"], told["reason"], told["cure"])
