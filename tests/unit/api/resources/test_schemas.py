"""Bodies of requests: a number is written as one, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

import api.endpoints.app  # noqa: F401 - knows the bodies of all routes
from api.resources.schemas import Request
from api.resources.sessions.schemas import SessionRequest
from common import findings

NUMBERS = {"integer", "number"}
SESSION = {"name": "first", "project": "team-a", "image": "python"}


def bodies(base: type[Request] = Request) -> Iterator[type[Request]]:
    """Return every body that is made of a base."""
    for body in base.__subclasses__():
        yield body
        yield from bodies(body)


def numbers(body: type[Request]) -> Iterator[tuple[str, Any]]:
    """Return the fields of a body that are numbers, or lists of these, each with what makes it one of a value."""
    for name, field in body.model_json_schema().get("properties", {}).items():
        for kind in (field, *field.get("anyOf", ())):
            if kind.get("type") in NUMBERS:
                yield name, lambda value: value
            elif kind.get("items", {}).get("type") in NUMBERS:
                yield name, lambda value: [value]


FIELDS = [
    pytest.param(body, name, made, id=f"{body.__name__}.{name}") for body in bodies() for name, made in numbers(body)
]


@pytest.mark.parametrize("value", [True, "1", 1.0], ids=repr)
@pytest.mark.parametrize(("body", "name", "made"), FIELDS)
def test_what_is_no_number_is_not_taken_for_one(body: type[Request], name: str, made: Any, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        body.model_validate({name: made(value)})
    assert [one["type"] for one in caught.value.errors() if one["loc"][0] == name] == ["int_type"]


def test_it_is_said_how_a_number_is_written() -> None:
    assert {"SessionRequest.gpu_milli", "SessionRequest.ports"} <= {field.id for field in FIELDS}
    with pytest.raises(ValidationError) as caught:
        SessionRequest.model_validate({**SESSION, "gpu_milli": "500"})
    (found,) = caught.value.errors()
    assert (findings.reason(found), findings.hint(found)) == (
        "is not a whole number",
        "write digits, without quotes",
    )


def test_a_number_is_taken_as_it_is() -> None:
    taken = SessionRequest.model_validate({**SESSION, "gpu_milli": 500, "ports": [8888], "limit_s": None})
    assert (taken.gpu_milli, taken.ports, taken.limit_s) == (500, [8888], None)
