"""Signs that the API works: its own socket answers by a question to the database, and the leader's loop goes round."""

from __future__ import annotations

import httpx

from api.control.manager import Manager
from api.settings import Settings

HEALTH_PATH = "/health"
PASS_S = 120.0
"""A pass of the reconcilers takes less by far, on the largest cluster too."""


class Signs:
    """Asks the API as the edge does."""

    def __init__(self, settings: Settings, manager: Manager) -> None:
        """Prepare; nothing is asked yet."""
        self._manager = manager
        scheme = "https" if settings.tls_cert else "http"
        self._url = f"{scheme}://{settings.host}:{settings.port}{HEALTH_PATH}"
        socket = str(settings.socket) if settings.socket else None
        # It is our own port of this machine: what is asked is whether it takes a new connection and answers.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(uds=socket, verify=False, limits=limits)

    async def what_hangs(self) -> str:
        """Return what does no work any more; nothing where all does.

        An answer that the database is away is an answer: to start again would not bring it back.
        """
        try:
            answer = await self._transport.handle_async_request(httpx.Request("GET", self._url))
            await answer.aread()
            await answer.aclose()
        except httpx.HTTPError as error:
            return f"the API gives itself no answer: {error or type(error).__name__}"
        if answer.status_code == httpx.codes.OK and self._manager.since_pass_s > PASS_S:
            return f"the reconcilers, for {self._manager.since_pass_s:.0f} s"
        return ""
