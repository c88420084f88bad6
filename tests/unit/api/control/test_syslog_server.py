"""A site's syslog server: where it listens, and what it gets by UDP."""

from __future__ import annotations

import json
import socket

from api.control.syslog_server import server_of
from api.resources.audit import chain, syslog
from api.resources.audit.chain import GENESIS
from common.settings.audit import AuditSettings, Protocol


def test_ports_are_those_of_the_protocols_where_none_is_named() -> None:
    def port(protocol: Protocol, server: str = "logs") -> int:
        found = server_of(AuditSettings(audit_syslog=server, audit_syslog_protocol=protocol))
        assert found
        return found.port

    assert (port("tls"), port("tcp"), port("udp"), port("udp", "logs:1514")) == (6514, 601, 514, 1514)
    assert server_of(AuditSettings()) is None


def test_by_udp_each_line_is_a_datagram() -> None:
    entry = {"time": "2026-11-23T10:00:00.000001Z", "action": "login", "result": "refused"}
    line, _ = chain.seal(b"key", GENESIS, "20261123", entry)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(10)
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        server = server_of(AuditSettings(audit_syslog=where, audit_syslog_protocol="udp"))
        assert server
        server.take([(line.rstrip(b"\n"), json.loads(line))] * 2)
        expected = syslog.message(line.rstrip(b"\n"), json.loads(line), socket.gethostname())
        assert [listening.recv(1 << 16) for _ in range(2)] == [expected] * 2
