"""Reports of denied calls: they come at their pace, however many calls there are."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from appliance.agent.reports.denied_call_reporter import DeniedCallReporter
from appliance.agent.sandbox.denied_calls import DeniedCalls, SeenCall

pytestmark = pytest.mark.anyio


class Busy:
    """A listener in whose containers calls are denied while each report is on its way."""

    def __init__(self) -> None:
        self.denied = DeniedCalls()
        self.note()

    def note(self) -> None:
        self.denied.note(SeenCall("c1", "s1", "unshare", "call", 2, "EPERM", datetime.now(UTC)))

    def reports(self) -> int:
        return self.denied.reports

    def take(self) -> list[Any]:
        return self.denied.untold()

    def tell(self, told: list[Any]) -> None:
        self.denied.tell(told)


async def test_what_is_denied_meanwhile_waits_for_the_next_report() -> None:
    listener, posted = Busy(), 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal posted
        posted += 1
        assert posted < 10, "it reports without end"
        listener.note()
        return httpx.Response(200)

    reporter = DeniedCallReporter(cast("Any", SimpleNamespace(name="worker1")), cast("Any", listener))
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://api") as client:
        await reporter.send(client)
        assert posted == 1
        await reporter.send(client)
    assert posted == 2


@pytest.mark.parametrize(("status", "is_told_again"), [(200, False), (403, True), (503, True), (422, False)])
async def test_what_the_api_did_not_take_is_told_again_unless_it_never_will_be(
    status: int, is_told_again: bool
) -> None:
    listener, posted = Busy(), 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal posted
        posted += 1
        return httpx.Response(status)

    reporter = DeniedCallReporter(cast("Any", SimpleNamespace(name="worker1")), cast("Any", listener))
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://api") as client:
        for _ in range(2):
            await reporter.send(client)
    assert posted == (2 if is_told_again else 1)
