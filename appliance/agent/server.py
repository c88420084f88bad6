"""Serves the agent over mutual TLS."""

from __future__ import annotations

import asyncio
import resource
import ssl
from functools import partial

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from appliance.agent import app, cores, upkeep
from appliance.agent.docker.containers import Limits
from appliance.agent.docker.engine import Engine
from appliance.agent.docker.gangs import Gangs
from appliance.agent.docker.images import Images
from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.docker.terminal import Terminal
from appliance.agent.forward import Forwarder
from appliance.agent.kubernetes import build as kubernetes
from appliance.agent.parts import Parts
from appliance.agent.peer import common_name, server_context
from appliance.agent.reports import inventory
from appliance.agent.reports.denials import Teller
from appliance.agent.sandbox.sandboxes import Gatekeeper
from appliance.agent.settings import Settings
from appliance.agent.watchdog import ask_for_time
from appliance.gpu import accelerators
from common import logs

log = structlog.get_logger()

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
    parts = kubernetes.build(settings) if settings.kubernetes_api else machine(settings)
    uvicorn.run(
        app.make(settings, parts),
        host=settings.bind,
        port=settings.port,
        http=PeerProtocol,
        ssl_certfile=settings.cert,
        ssl_keyfile=settings.key,
        ssl_ca_certs=str(settings.ca),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


def machine(settings: Settings) -> Parts:
    """Return the parts of an agent that runs containers on its own machine; raises PenstockError."""
    limits = Limits(settings.pids_limit, _lockable_memory())
    engine = Engine(
        settings.docker_socket, settings.mount_roots, limits, settings.sandbox_socket, settings.cores_folder
    )
    kinds, node_cores = inventory.kinds(settings), cores.of_node()
    gpus = accelerators.discover(kinds)
    told = engine.info()
    has = inventory.take(settings, told, gpus, node_cores)
    log.info(
        "agent starts", node=has.name, gpus=len(has.gpus), simulated=bool(settings.simulated_gpus), port=settings.port
    )
    keeper = upkeep.build(settings, gpus, kinds, told["CgroupDriver"])
    images = Images(engine)
    forwarder = Forwarder(server_context(settings), settings.edges, bind=settings.bind, port_range=settings.port_range)
    supervisor = Supervisor(
        engine,
        images,
        forwarder,
        shares=keeper.shares,
        gangs=Gangs(engine, settings.address),
        near=gpus.near,
        node_cores=node_cores,
        mount_roots=settings.mount_roots,
    )
    gatekeeper = Gatekeeper(settings.sandbox_socket)

    def close() -> None:
        gatekeeper.close()
        keeper.close()
        engine.close()

    return Parts(
        inventory=lambda: keeper.shares.describe(has),
        containers=supervisor,
        images=images,
        terminal=partial(Terminal, engine),
        begin=gatekeeper.start,
        tasks=lambda: [*keeper.tasks(supervisor), Teller(settings, gatekeeper).run()],
        is_stuck=keeper.arbiter.is_stuck,
        close=close,
    )


def _lockable_memory() -> int:
    """Return how many bytes a container may be allowed to lock: without limit where this machine lets root say so."""
    unlimited = resource.RLIM_INFINITY
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (unlimited, unlimited))
    except (ValueError, OSError):
        log.warning("sessions can lock little memory", hint="give the agent and Docker the right CAP_SYS_RESOURCE")
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
