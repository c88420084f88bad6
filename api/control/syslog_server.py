"""Syslog server of the site: what is sent to it is there when it has read all, and not when we have written it.

Syslog has no answers. So each batch has a connection of its own that we end, and it counts when the server ends it,
too: it does so when it has read to the end, and one that dies in between resets it.
All here waits: call it in a thread.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from api.resources.audit import syslog
from api.resources.audit.chain import Entry
from common.settings.audit import AuditSettings, Protocol

ANSWER_S = 30.0
PORTS: dict[Protocol, int] = {"tls": 6514, "tcp": 601, "udp": 514}


@dataclass(frozen=True)
class SyslogServer:
    """Where it listens, and how; `certificate` and `key` are ours, for one that asks."""

    host: str
    port: int
    protocol: Protocol
    ca: Path | None
    certificate: Path | None = None
    key: Path | None = None

    def take(self, lines: Sequence[tuple[bytes, Entry]]) -> None:
        """Let the server have lines; raises OSError where it may not have read all of them."""
        own = socket.gethostname()
        if self.protocol == "udp":
            self._send([syslog.datagram(line, entry, own) for line, entry in lines])
            return
        content = b"".join(syslog.framed(syslog.message(line, entry, own)) for line, entry in lines)
        with socket.create_connection((self.host, self.port), ANSWER_S) as connection:
            if self.protocol == "tls":
                self._over_tls(connection, content)
            else:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                _until_end(connection)

    def _over_tls(self, connection: socket.socket, content: bytes) -> None:
        context = ssl.create_default_context(cafile=self.ca)
        # by TLS 1.3 we would be connected before the server has looked at our certificate, and one that ends the
        # connection then looks as one that has read all
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        with context.wrap_socket(connection, server_hostname=self.host) as secured:
            secured.sendall(content)
            # who ends the connection below TLS has read to the end as well
            with suppress(ssl.SSLEOFError, ssl.SSLZeroReturnError):
                secured.unwrap()
                return
            _until_end(secured)

    def _send(self, datagrams: Sequence[bytes]) -> None:
        family, kind, number, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, number) as connection:
            for told in datagrams:
                connection.sendto(told, address)


def server_of(settings: AuditSettings, certificate: Path | None = None, key: Path | None = None) -> SyslogServer | None:
    """Return the server that the site names; it is shown our certificate where the site says so."""
    if not settings.audit_syslog:
        return None
    host, _, port = settings.audit_syslog.partition(":")
    protocol = settings.audit_syslog_protocol
    ca = settings.audit_syslog_ca
    own = (certificate, key) if settings.audit_syslog_certificate else (None, None)
    return SyslogServer(host, int(port or PORTS[protocol]), protocol, Path(ca) if ca else None, *own)


def _until_end(connection: socket.socket) -> None:
    while connection.recv(1 << 12):
        pass
