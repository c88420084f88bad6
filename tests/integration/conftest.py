"""Integration tests run side by side, a file on one worker; files that look at the engine's containers take turns."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TURN = Path(tempfile.gettempdir()) / "penstock-tests-engine.lock"


@pytest.fixture(scope="module", autouse=True)
def turn_at_the_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let one file at a time have agents on the engine: each takes every container of a session for its own."""
    mine = [item for item in request.session.items if item.path == request.path]
    if not any("engine" in getattr(item, "fixturenames", ()) for item in mine):
        yield
        return
    with TURN.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
