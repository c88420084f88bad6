"""Reports of who has connections to apps open; those who may open the app no longer lose them."""

from __future__ import annotations

import asyncio

import httpx
import structlog
from pydantic import ValidationError

from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.settings import Settings
from appliance.agent.tls import api_client
from common.app_protocol import APP_CALLERS_PATH, AppCaller, AppCallersReply, AppCallersReport

log = structlog.get_logger()

MAX_CALLERS = 10_000
"""Of one report; where there are more, the others come next."""


class AppCallerReporter:
    """Asks the control API about all who are there; while it is away nobody loses anything."""

    def __init__(self, settings: Settings, forwarder: PortForwarder) -> None:
        """Prepare."""
        self._settings = settings
        self._forwarder = forwarder
        self._interval_s = AppCallersReply(leave=[]).interval_s
        self._asked: set[tuple[str, str]] = set()
        self._failing = False

    async def run(self) -> None:
        """Ask for ever."""
        async with api_client(self._settings) as client:
            while True:
                await asyncio.sleep(self._interval_s)
                await self.ask(client)

    async def ask(self, client: httpx.AsyncClient) -> None:
        """Ask once, and end what has to end."""
        there = self._forwarder.callers()
        if not there:
            return
        chosen = sorted(there, key=lambda each: (each in self._asked, each))[:MAX_CALLERS]
        self._asked = {*chosen} if len(there) > MAX_CALLERS else set()
        callers = [AppCaller(container_id=identity, caller=caller) for identity, caller in chosen]
        report = AppCallersReport(name=self._settings.name, callers=callers)
        try:
            answer = await client.post(
                APP_CALLERS_PATH, content=report.written(), headers={"Content-Type": "application/json"}
            )
            reply = AppCallersReply.model_validate_json(answer.raise_for_status().content)
        except (httpx.HTTPError, ValidationError) as error:
            if not self._failing:
                log.warning("the control API does not say who may stay at apps", reason=str(error))
            self._failing = True
            return
        self._failing, self._interval_s = False, reply.interval_s
        for each in reply.leave:
            log.info("connections to an app end", id=each.container_id, caller=each.caller)
            self._forwarder.cut(each.container_id, each.caller)
