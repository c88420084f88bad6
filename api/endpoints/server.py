"""The server: uvicorn on a unix socket behind the edge, or on a TCP port of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
from asyncio import Transport
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.database import Database
from api.endpoints.app import create_app
from api.engine.base import Engine
from api.engine.direct import DirectEngine, client_context
from api.migrations import schema
from api.settings import Settings
from common import certificates, logs
from common.errors import InputError, UnavailableError
from common.protocol import MAX_FRAME, STALLED_S
from common.revocation import refuse_revoked
from common.watchdog import ask_for_time

SHUTDOWN_S = 5
log = structlog.get_logger()


class CertificateProtocol(HttpToolsProtocol):
    """HTTP that tells the application whose certificate the client showed, as `state.certificate_name`."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Read the common name of a client whose certificate TLS has verified."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peercert") or {}
        names = [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]
        self.app_state = {**self.app_state, "certificate_name": names[0] if len(names) == 1 else ""}


def serve(settings: Settings, engine: Engine | None = None, *, pages: Callable[[FastAPI], None] | None = None) -> None:
    """Serve until SIGTERM, by the node agents or another engine, with the `pages` of the console where they are given.

    Raises PenstockError where the settings or the database do not allow it.
    """
    logs.write("penstock-api", journal_stream=settings.journal_stream)
    logging.basicConfig(level=logging.WARNING, format="level=%(levelname)s event=%(name)s message=%(message)s")
    ask_for_time(settings.notify_socket, settings.watchdog_usec)
    engine = engine or _agents(settings)
    asyncio.run(_check_schema(settings))
    app = create_app(settings, Database(settings.database_url), engine, pages=pages)
    # kept from then on: whoever asked for it first would make all others wait
    app.openapi()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=CertificateProtocol,
        loop="uvloop",
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME,
        ws_ping_timeout=STALLED_S,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusts_client_headers,
        forwarded_allow_ips="*",
        timeout_graceful_shutdown=SHUTDOWN_S,
        # Longer than the edge keeps its idle connections, so that it never calls on one that we have just closed.
        timeout_keep_alive=75,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=str(settings.tls_key) if settings.tls_key else None,
        ssl_ca_certs=str(settings.agent_ca) if settings.tls_cert else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.tls_cert else ssl.CERT_NONE,
    )
    if settings.tls_cert and settings.tls_key and settings.agent_ca:
        # uvicorn does not say which file it cannot use
        certificates.context(ssl.Purpose.CLIENT_AUTH, settings.agent_ca, settings.tls_cert, settings.tls_key)
    config.load()
    if config.ssl:
        refuse_revoked(config.ssl, settings.agent_crl)
    server = uvicorn.Server(config)
    # Modules and routes live as long as the process: to look through them again and again for what nobody needs any
    # more would hold up every request meanwhile.
    gc.collect()
    gc.freeze()
    # uvicorn ends in order at this signal and then raises it once more; for us the work is done by then.
    signal.signal(signal.SIGTERM, lambda *_: None)
    if settings.socket is None:
        log.info("serving", host=settings.host, port=settings.port, tls=settings.tls_cert is not None)
        server.run()
    else:
        with _listening(settings.socket, settings.socket_mode) as listener:
            log.info("serving", socket=str(settings.socket))
            server.run(sockets=[listener])


def _agents(settings: Settings) -> DirectEngine:
    if settings.agent_ca is None or settings.agent_cert is None or settings.agent_key is None:
        raise InputError(
            "the API has no certificate towards the node agents",
            where="PENSTOCK_API_AGENT_CA, _CERT, _KEY",
            hint="name the PEM files of the site's authority and of this node",
        )
    return DirectEngine(client_context(settings.agent_ca, settings.agent_cert, settings.agent_key, settings.agent_crl))


async def _check_schema(settings: Settings) -> None:
    database = Database(settings.database_url)
    try:
        await schema.check(database)
    finally:
        await database.close()


@contextmanager
def _listening(path: Path, mode: int) -> Iterator[socket.socket]:
    """Listen on a unix socket that only owner and group may open, whatever the umask says."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(mode)
        yield listener
    except OSError as error:
        raise UnavailableError(
            f"the socket cannot be made: {error}", where=str(path), hint="make its folder, writable for this user"
        ) from error
    finally:
        listener.close()
        with suppress(OSError):
            path.unlink(missing_ok=True)
