"""The server of the agent, over mutual TLS."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from appliance.agent import app
from appliance.agent.docker import build as docker
from appliance.agent.kubernetes import build as kubernetes
from appliance.agent.listener import Listener, Strangers
from appliance.agent.settings import Settings
from appliance.agent.tls import common_name, server_context
from common import logs
from common.errors import UnavailableError
from common.protocol import MAX_FRAME, STALLED_S
from common.watchdog import ask_for_time

_SHUTDOWN_S = 2


class PeerProtocol(H11Protocol):
    """HTTP that tells the application who called: `state.peer` is the common name of the client's certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the name once a connection; uvicorn copies this state into each request and WebSocket."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": common_name(transport.get_extra_info("peercert"))}


class MutualTlsServer(uvicorn.Server):
    """A server at a listener of the agent."""

    def __init__(self, config: uvicorn.Config, settings: Settings, strangers: Strangers) -> None:
        """Prepare; nothing is open yet."""
        super().__init__(config)
        self._settings = settings
        self._listener = Listener(strangers, server_context(settings), settings.allowed, self._protocol)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen."""
        await super().startup(sockets=[])
        try:
            self._listener.open(self._settings.bind, self._settings.port)
        except OSError as error:
            await self.lifespan.shutdown()
            raise UnavailableError(
                f"the agent cannot listen: {error}",
                where=f"{self._settings.bind}:{self._settings.port}",
                hint="choose another agent_port for this node, or end what listens there",
            ) from error

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let nobody in any more, and end."""
        self._listener.close()
        await super().shutdown(sockets=[])

    def _protocol(self) -> asyncio.Protocol:
        return PeerProtocol(self.config, self.server_state, self.lifespan.state)


def serve(settings: Settings) -> None:
    """Serve until a signal ends it; raises PenstockError where the node cannot be an agent."""
    logs.write("penstock-agent", journal_stream=settings.journal_stream, node=settings.name)
    ask_for_time(settings.notify_socket, settings.watchdog_usec)
    strangers = Strangers()
    runtime = (kubernetes if settings.kubernetes_api else docker).build(settings, strangers)
    config = uvicorn.Config(
        app.make(settings, runtime),
        ws_max_size=MAX_FRAME,
        ws_ping_timeout=STALLED_S,
        loop="asyncio",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    MutualTlsServer(config, settings, strangers).run()
