"""The audit log by syslog: a server that reads strictly has every line once all is well, whatever happened before."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from errno import ECONNRESET, ENOTCONN, EPIPE
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest

from api.control import audit_sender
from api.control.audit_sender import AuditSender
from api.resources.audit import service
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.integration.agent.conftest import Authority, make_authority

pytestmark = pytest.mark.anyio

MESSAGE = re.compile(
    rb"<(?P<pri>1(?:08|09))>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (?P<host>[!-~]{1,255}) penstock - "
    rb'(?P<msgid>[!-~]{1,32}) \[meta sequenceId="(?P<seq>[1-9]\d*)"\]\[origin software="penstock"\] (?P<msg>\{.*\})'
)
"""What RFC 5424 allows, as far as we use it."""


@dataclass
class Server:
    """A syslog server of RFC 6587 and RFC 5425: each message has its length before it, and nothing else comes.

    While it `resets` it ends connections with what it has not read.
    """

    context: ssl.SSLContext | None = None
    port: int = 0
    resets: bool = False
    messages: list[bytes] = field(default_factory=list)
    listening: asyncio.Server | None = None

    async def open(self) -> None:
        self.listening = await asyncio.start_server(self.take, "127.0.0.1", self.port, ssl=self.context)
        self.port = self.listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self.listening:
            self.listening.close()
            await self.listening.wait_closed()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.resets:
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return
        while length := await self._length(reader):
            self.messages.append(await reader.readexactly(length))
        writer.close()

    async def _length(self, reader: asyncio.StreamReader) -> int:
        digits = b""
        while (byte := await reader.read(1)) not in (b" ", b""):
            assert byte in b"0123456789"[not digits :], digits + byte
            digits += byte
        return int(digits or b"0")

    def lines(self) -> list[dict[str, Any]]:
        """The lines that came, each as it stands in the log."""
        found = []
        for one in self.messages:
            match = MESSAGE.fullmatch(one)
            assert match, one
            line = json.loads(match["msg"])
            assert int(match["seq"]) == line["seq"]
            assert match["msgid"].decode() == line["action"]
            assert match["time"].decode() == line["time"]
            assert match["pri"] == (b"109" if line["result"] == "done" else b"108")
            found.append(line)
        return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(params=["tcp", "tls"])
async def site(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, authority: Authority
) -> AsyncIterator[tuple[Cluster, Server]]:
    server = Server()
    protocol = "tcp" if request.param == "tcp" else "tls"
    changes: dict[str, Any] = {"audit_syslog_protocol": protocol}
    if protocol == "tls":
        server.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.context.load_cert_chain(*authority.issue("localhost"))
        changes["audit_syslog_ca"] = str(authority.ca)
        if request.param == "asks":
            server.context.load_verify_locations(authority.ca)
            server.context.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "log").mkdir()
    (tmp_path / "key").write_text("a key of these tests")
    folders = {"audit_folder": tmp_path / "log", "audit_key": tmp_path / "key"}
    await server.open()
    changes["audit_syslog"] = f"localhost:{server.port}"
    async with running_cluster(database_url, **folders, **changes) as cluster:
        yield cluster, server
    await server.close()


async def check(cluster: Cluster, name: str = "audit.syslog") -> tuple[str, str]:
    """What health says of it, after as many looks as count."""
    for _ in range(3):
        cluster.clock.passed += cluster.settings.health_interval_s
        await cluster.settle()
    found = await ok(cluster.admin.get(f"{V1}/health/checks"))
    (one,) = [one for one in found if one["check"] == name]
    return one["state"], one["evidence"]


async def test_a_server_that_was_away_has_every_line_afterwards(
    site: tuple[Cluster, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_sender, "AT_ONCE", 3)
    cluster, server = site
    await cluster.add_project("vision", 0)
    await cluster.settle()
    assert [line["object"] for line in server.lines()] == ["projects/vision"]
    await server.close()
    for number in range(7):
        await cluster.add_project(f"p{number}", 0)
    await cluster.settle()
    assert len(server.messages) == 1
    state, said = await check(cluster)
    assert state == "warn"
    assert said.startswith("7 lines wait since ")
    await server.open()
    cluster.clock.passed += audit_sender.LONGEST_S
    await cluster.settle()
    async with cluster.database.reading() as db:
        head = await service.head(db)
        assert (await service.sent(db)).seq == head.seq
    assert [line["seq"] for line in server.lines()] == [*range(1, head.seq + 1)]
    assert server.lines()[-1]["mac"] == head.mac
    assert (await check(cluster))[0] == "ok"


async def test_what_was_not_noted_as_sent_comes_again(
    site: tuple[Cluster, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, server = site

    async def die(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(service, "note_sent", die)
        await cluster.add_project("vision", 0)
        while not server.messages:
            await cluster.manager.reconcile()
            await asyncio.gather(*cluster.manager.operations.values())
    cluster.clock.passed += audit_sender.LONGEST_S
    await cluster.settle()
    assert [line["seq"] for line in server.lines()] == [1, 1]


@pytest.mark.parametrize("site", ["tcp"], indirect=True)
@pytest.mark.parametrize("batch", [2, 200])
async def test_what_is_not_as_it_was_written_is_sent_as_it_stands_and_told(
    site: tuple[Cluster, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(audit_sender, "AT_ONCE", batch)
    cluster, server = site
    await cluster.add_project("p1", 0)
    await cluster.settle()
    await server.close()
    for number in range(2, 9):
        await cluster.add_project(f"p{number}", 0)
    await cluster.settle()
    (path,) = (tmp_path / "log").glob("*.log")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'{"seq":3,', b'{"seq":1,')
    lines[4:5] = []
    lines[-1] = lines[-1].replace(b'"admin"', b'"mally"')
    path.write_bytes(b"".join(lines))
    await server.open()
    cluster.clock.passed += audit_sender.LONGEST_S
    await cluster.settle()
    whole, server.messages = server.messages, [one for one in server.messages if b" audit_unreadable " not in one]
    assert [line["seq"] for line in server.lines()] == [1, 2, 4, 6, 7]
    odd = [json.loads(one[one.index(b"{") :]) for one in whole if one not in server.messages]
    assert [one.get("line") or one["what"] for one in odd] == [
        lines[2].decode().rstrip(),
        "when the log was sent, behind line 2: 1 not as written stand there, lines 3 to 3 are missing",
        "when the log was sent, behind line 4: lines 5 to 5 are missing",
        lines[-1].decode().rstrip(),
        "when the log was sent, behind line 7: 1 not as written stand there, lines 8 to 8 are missing",
    ]
    assert all(one.startswith(b"<106>1 ") for one in whole if one not in server.messages)
    assert await check(cluster, "audit.log") == ("fail", odd[-1]["what"])
    async with cluster.database.reading() as db:
        assert (await service.sent(db)).seq == 8


@pytest.mark.parametrize("site", ["tcp"], indirect=True)
async def test_what_a_server_has_not_read_to_the_end_is_not_sent(site: tuple[Cluster, Server]) -> None:
    cluster, server = site
    server.resets = True
    await cluster.add_project("vision", 0)
    await cluster.settle()
    async with cluster.database.reading() as db:
        sent = await service.sent(db)
    # by when it comes: while we write, before we have said that this is all, or while we wait for the end
    ends = {str(OSError(number, os.strerror(number))) for number in (EPIPE, ENOTCONN, ECONNRESET)}
    assert sent.seq == 0
    assert sent.reason in ends


@pytest.mark.parametrize("site", ["asks"], indirect=True)
async def test_a_server_that_asks_for_a_certificate_is_shown_that_of_the_site(
    site: tuple[Cluster, Server], authority: Authority
) -> None:
    cluster, server = site
    await cluster.add_project("vision", 0)
    await cluster.settle()
    assert (await check(cluster))[0] == "warn"
    assert server.messages == []
    certificate, key = authority.issue("master")
    own = {"audit_syslog_certificate": True, "agent_cert": certificate, "agent_key": key}
    cluster.app.state.manager._audit_sender = AuditSender(
        cluster.database, cluster.settings.model_copy(update=own), cluster.clock
    )
    await cluster.settle()
    assert [line["object"] for line in server.lines()] == ["projects/vision"]
    assert (await check(cluster))[0] == "ok"
