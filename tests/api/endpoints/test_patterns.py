"""What a text of a request has to look like is said in words: nobody is shown a regular expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from common import hints
from tests.api.cluster import Cluster

pytestmark = pytest.mark.anyio

NOT_WRITTEN = {"/api/v1/apps/authorize", "/api/v1/apps/enter", "/apps/open"}
"""What nginx and our own redirects ask."""


def patterns(schema: Any) -> Iterator[str]:
    """Yield the patterns of a schema, as pydantic checks it, that stand without words."""
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from patterns(part)
    elif isinstance(schema, dict) and not _is_worded(schema):
        if schema.get("type") == "str" and "pattern" in schema:
            yield str(schema["pattern"])
        for part in schema.values():
            yield from patterns(part)


def _is_worded(schema: dict[Any, Any]) -> bool:
    function = schema.get("function")
    return isinstance(function, dict) and getattr(function.get("function"), "__module__", "") == hints.__name__


def inputs(dependant: Dependant) -> Iterator[Any]:
    """Yield the fields of what an endpoint and all that it depends on read of a request."""
    yield from (*dependant.path_params, *dependant.query_params, *dependant.header_params, *dependant.body_params)
    for inner in dependant.dependencies:
        yield from inputs(inner)


async def test_every_text_that_people_write_says_in_words_what_it_may_be(cluster: Cluster) -> None:
    found = set()
    for context in iter_route_contexts(cluster.app.routes):
        path = str(context.path)
        dependant = getattr(context.original_route, "dependant", None)
        if dependant is None or path.startswith("/agent/") or path in NOT_WRITTEN:
            continue
        for field in inputs(dependant):
            found |= {(path, field.name, one) for one in patterns(field._type_adapter.core_schema)}
    assert found == set()


def test_a_pattern_without_words_is_found() -> None:
    schema = {"type": "nullable", "schema": {"type": "str", "pattern": "^a$"}}
    assert list(patterns(schema)) == ["^a$"]
