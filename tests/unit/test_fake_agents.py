"""Simulated agents do as real ones where it decides what a benchmark measures."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import cast

import pytest

from tests.fakes.agents import Behaviour, FakeAgent, Way
from tests.fakes.http import Answer, Client

pytestmark = pytest.mark.anyio


class Refusing:
    """A connection to an API that is not up."""

    def __init__(self) -> None:
        self.calls = 0
        self.again = asyncio.Event()

    async def call(self, *_: object) -> Answer:
        self.calls += 1
        if self.calls > 1:
            self.again.set()
        raise ConnectionRefusedError

    def close(self) -> None:
        pass


async def test_after_a_failure_they_come_back_as_soon_as_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once after a power failure, that is what an API has to bear."""
    connection = Refusing()
    monkeypatch.setattr(Way, "client", lambda *_: cast("Client", connection))
    agent = FakeAgent("one", 1, Way(Path(), lambda _: (Path(), Path())), Behaviour())
    await agent.start(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    try:
        await asyncio.wait_for(connection.again.wait(), 3)
    finally:
        await agent.stop()
