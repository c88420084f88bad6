"""Reports of the system calls that sandboxes denied; what the control API does not take now waits for the next time."""

from __future__ import annotations

import asyncio

import httpx
import structlog

from appliance.agent.sandbox.seccomp_listener import SeccompListener
from appliance.agent.settings import Settings
from appliance.agent.tls import api_client
from common.denied_call_protocol import DENIED_CALLS_PATH, DeniedCallReport

log = structlog.get_logger()

_REFUSED = (400, 413, 422)


class DeniedCallReporter:
    """Posts what the listener of sandboxes has noted."""

    def __init__(self, settings: Settings, listener: SeccompListener) -> None:
        """Prepare; nothing is told yet."""
        self._settings = settings
        self._listener = listener
        self._failing = False

    async def send(self, client: httpx.AsyncClient) -> None:
        """Tell what has not been told by now; what is denied meanwhile waits for the next time."""
        for _ in range(self._listener.reports()):
            if not (denied_calls := self._listener.take()):
                return
            report = DeniedCallReport(name=self._settings.name, denied_calls=denied_calls)
            try:
                answer = await client.post(
                    DENIED_CALLS_PATH, content=report.written(), headers={"Content-Type": "application/json"}
                )
                if answer.status_code in _REFUSED:
                    log.warning("the control API refuses denied system calls; they stay here", count=len(denied_calls))
                else:
                    answer.raise_for_status()
            except httpx.HTTPError as error:
                if not self._failing:
                    log.warning("the control API does not take denied system calls", reason=str(error))
                self._failing = True
                return
            self._failing = False
            self._listener.tell(denied_calls)

    async def run(self) -> None:
        """Tell for ever."""
        async with api_client(self._settings) as client:
            while True:
                await asyncio.sleep(self._settings.metrics_interval_s)
                await self.send(client)
