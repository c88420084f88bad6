"""The server of the agent, over mutual TLS."""

from __future__ import annotations

import asyncio
import ssl

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from appliance.agent import app
from appliance.agent.docker import build as docker
from appliance.agent.kubernetes import build as kubernetes
from appliance.agent.settings import Settings
from appliance.agent.tls import common_name
from appliance.agent.watchdog import ask_for_time
from common import logs
from common.protocol import MAX_FRAME

_SHUTDOWN_S = 2


class PeerProtocol(H11Protocol):
    """HTTP that tells the application who called: `state.peer` is the common name of the client's certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the name once a connection; uvicorn copies this state into each request and WebSocket."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": common_name(transport.get_extra_info("peercert"))}


def serve(settings: Settings) -> None:
    """Serve until a signal ends it; raises PenstockError where the node cannot be an agent."""
    logs.write_lines()
    ask_for_time(settings.notify_socket, settings.watchdog_usec)
    runtime = (kubernetes if settings.kubernetes_api else docker).build(settings)
    uvicorn.run(
        app.make(settings, runtime),
        host=settings.bind,
        port=settings.port,
        http=PeerProtocol,
        ws_max_size=MAX_FRAME,
        ssl_certfile=settings.cert,
        ssl_keyfile=settings.key,
        ssl_ca_certs=str(settings.ca),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
