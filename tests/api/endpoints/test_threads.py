"""Endpoints and what they depend on run on the event loop."""

from __future__ import annotations

from inspect import isasyncgenfunction, iscoroutinefunction

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from tests.api.cluster import Cluster

pytestmark = pytest.mark.anyio


async def test_no_request_waits_for_a_thread(cluster: Cluster) -> None:
    """FastAPI calls what is no coroutine on a thread; under load each such call waits for its turn."""
    assert {str(call) for call in calls(cluster.app) if not _is_async(call)} == set()


def calls(app: FastAPI) -> set[object]:
    found: set[object] = set()

    def walk(dependant: Dependant) -> None:
        found.add(dependant.call)
        for part in dependant.dependencies:
            walk(part)

    for context in iter_route_contexts(app.routes):
        if dependant := getattr(context, "dependant", None) or getattr(context.original_route, "dependant", None):
            walk(dependant)
    return found


def _is_async(call: object) -> bool:
    return iscoroutinefunction(call) or isasyncgenfunction(call)
