"""Alerts: each change is told once, by webhook and by mail, and again where nobody took it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_string, policy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from api.clock import now
from api.control import alert_sender
from api.tables.health import HealthAlert
from common.check_protocol import CheckReport
from common.checks import CheckState
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.integration.agent.conftest import Authority, make_authority

pytestmark = pytest.mark.anyio


@dataclass
class Post:
    """A webhook and a mail server that take what is sent to them; `status` is what the webhook answers."""

    status: int = 200
    posted: list[dict[str, Any]] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)

    async def webhook(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].splitlines()[0])
        body = json.loads(await reader.readexactly(length))
        if self.status == 200:
            self.posted.append(body)
        writer.write(f"HTTP/1.1 {self.status} said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def mail(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak as much SMTP as RFC 5321 asks of a server."""
        writer.write(b"220 site\r\n")
        while line := (await reader.readline()).decode():
            verb = line.split()[0].upper()
            if verb == "DATA":
                writer.write(b"354 go on\r\n")
                text = (await reader.readuntil(b"\r\n.\r\n")).decode()
                self.mails.append(text)
            writer.write({"QUIT": b"221 bye\r\n"}.get(verb, b"250 ok\r\n"))
            await writer.drain()
            if verb == "QUIT":
                break
        writer.close()


@pytest.fixture
async def post() -> AsyncIterator[tuple[Post, int, int]]:
    """Both servers, and their ports."""
    made = Post()
    web = await asyncio.start_server(made.webhook, "127.0.0.1", 0)
    mail = await asyncio.start_server(made.mail, "127.0.0.1", 0)
    async with web, mail:
        yield made, web.sockets[0].getsockname()[1], mail.sockets[0].getsockname()[1]


@pytest.fixture
async def alerting(database_url: str, post: tuple[Post, int, int]) -> AsyncIterator[Cluster]:
    """A cluster that tells both."""
    _, web, mail = post
    changes: dict[str, Any] = {
        "alerts_webhook": f"http://127.0.0.1:{web}/hook",
        "alerts_mail_server": f"127.0.0.1:{mail}",
        "alerts_mail_tls": False,
        "alerts_mail_to": ["ops@example.org"],
    }
    async with running_cluster(database_url, **changes) as cluster:
        await cluster.add_node()
        yield cluster


@dataclass
class TlsMail:
    """A mail server that speaks in clear until STARTTLS, and takes no mail before it; `clear` is what it heard then."""

    context: ssl.SSLContext
    clear: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 site\r\n")
        is_secret = False
        while line := (await reader.readline()).decode():
            verb = line.split()[0].upper()
            if not is_secret:
                self.clear.append(verb)
            if verb == "STARTTLS" and not is_secret:
                writer.write(b"220 go on\r\n")
                try:
                    await writer.start_tls(self.context)
                except OSError:
                    break
                is_secret = True
                continue
            if verb == "EHLO":
                # RFC 3207: after the handshake it is not offered any more
                writer.write(b"250 site\r\n" if is_secret else b"250-site\r\n250 STARTTLS\r\n")
            elif verb == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            elif not is_secret:
                writer.write(b"530 Must issue a STARTTLS command first\r\n")
            elif verb == "DATA":
                writer.write(b"354 go on\r\n")
                self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                writer.write(b"250 ok\r\n")
            else:
                writer.write(b"250 ok\r\n" if verb in ("MAIL", "RCPT", "RSET") else b"500 what\r\n")
        writer.close()


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """One that vouches for the mail server, and another one."""
    return make_authority(tmp_path_factory.mktemp("ours")), make_authority(tmp_path_factory.mktemp("other"))


async def mailed(database_url: str, authority: Authority, ca: Path) -> TlsMail:
    """Return the mail server after a change that it was to be told of."""
    certificate, key = authority.issue("mail.example.org")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made = TlsMail(context)
    async with await asyncio.start_server(made, "127.0.0.1", 0) as server:
        changes: dict[str, Any] = {
            "alerts_mail_server": f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "alerts_mail_ca": str(ca),
            "alerts_mail_to": ["ops@example.org"],
        }
        async with running_cluster(database_url, **changes) as cluster:
            await cluster.add_node()
            await told(cluster, "fail")
            await later(cluster, 1)
    return made


async def test_mail_goes_by_starttls_and_nothing_of_it_in_clear(
    database_url: str, authorities: tuple[Authority, Authority]
) -> None:
    server = await mailed(database_url, authorities[0], authorities[0].ca)
    [mail] = server.mails
    assert "Subject: [penstock] worker1 GPU-1: gpu.xid is fail" in mail
    assert server.clear == ["EHLO", "STARTTLS"]


async def test_a_mail_server_that_nobody_vouches_for_gets_no_mail(
    database_url: str, authorities: tuple[Authority, Authority]
) -> None:
    server = await mailed(database_url, authorities[0], authorities[1].ca)
    assert server.mails == []
    assert "MAIL" not in server.clear


async def told(cluster: Cluster, state: str, thing: str = "GPU-1") -> None:
    check = CheckReport(
        id="gpu.xid",
        name="no Xid",
        state=CheckState(state),
        thing=thing,
        evidence="Xid 79",
        hint="reset it",
        repair="5-D",
    )
    await cluster.heartbeat(checks=[check])
    await cluster.settle()


async def later(cluster: Cluster, seconds: float) -> None:
    cluster.clock.ahead += timedelta(seconds=seconds)
    await cluster.settle()


async def test_each_change_is_told_once(alerting: Cluster, post: tuple[Post, int, int]) -> None:
    sent = post[0]
    for state in ("ok", "fail", "fail", "ok"):
        await told(alerting, state)
        await later(alerting, 1)
    assert [(one["node"], one["check"], one["thing"], one["before"], one["state"]) for one in sent.posted] == [
        ("worker1", "gpu.xid", "GPU-1", "ok", "fail"),
        ("worker1", "gpu.xid", "GPU-1", "fail", "ok"),
    ]
    assert sent.posted[0]["repair"] == "5-D"
    assert len(sent.mails) == 2
    assert "Subject: [penstock] worker1 GPU-1: gpu.xid is fail" in sent.mails[0]
    assert "hint: reset it" in sent.mails[0]
    assert "repair: penstock repair run 5-D" in sent.mails[0]
    assert "To: ops@example.org" in sent.mails[0]


async def test_what_nobody_took_is_told_later_and_old_news_are_given_up(
    alerting: Cluster, post: tuple[Post, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_sender, "FIRST_S", 300.0)
    sent = post[0]
    sent.status = 503
    await told(alerting, "fail")
    await later(alerting, 1)
    assert (sent.posted, len(sent.mails)) == ([], 1)
    sent.status = 200
    await later(alerting, 180)
    assert sent.posted == [], "it is not tried again at once"
    await later(alerting, 300)
    assert len(sent.posted) == 1
    assert len(sent.mails) == 1, "who was told is not told again"
    sent.status = 503
    await told(alerting, "ok")
    await later(alerting, 25 * 3600)
    sent.status = 200
    await later(alerting, 25 * 3600)
    assert len(sent.posted) == 1


async def test_nobody_is_told_of_what_is_acknowledged(alerting: Cluster, post: tuple[Post, int, int]) -> None:
    await told(alerting, "warn")
    await later(alerting, 1)
    [check] = await ok(alerting.admin.get(f"{V1}/health/checks?node=worker1"))
    until = (now() + timedelta(hours=1)).isoformat()
    await ok(alerting.admin.put(f"{V1}/health/checks/{check['id']}/acknowledgement", json={"until": until}))
    await told(alerting, "fail")
    await later(alerting, 1)
    assert [one["state"] for one in post[0].posted] == ["warn"]


async def test_what_an_agent_writes_stands_in_one_line_of_a_mail(
    alerting: Cluster, post: tuple[Post, int, int]
) -> None:
    async with asyncio.timeout(5):
        await told(alerting, "fail", "GPU\nBcc: all@example.org\n\ncall this number\x1b[2J")
        await later(alerting, 1)
    [mail] = post[0].mails
    read = message_from_string(mail, policy=policy.default)
    assert "Bcc" not in read
    (body,) = [part.get_content() for part in read.walk()]
    assert "\\n\\ncall this number\\x1b[2J: no Xid: new -> fail" in body.splitlines()[0]


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: bytes, piece: bytes) -> None:
    """Answer for longer than anybody waits, a little before each time that nobody would."""
    writer.write(begin)
    with suppress(ConnectionError):
        for _ in range(160):
            if reader.at_eof():
                break
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
    writer.close()


@pytest.mark.parametrize(
    ("begin", "piece", "waits"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0),
    ],
    ids=["head", "body"],
)
async def test_a_webhook_that_never_ends_keeps_nobody(
    database_url: str,
    post: tuple[Post, int, int],
    monkeypatch: pytest.MonkeyPatch,
    begin: bytes,
    piece: bytes,
    waits: int,
) -> None:
    monkeypatch.setattr(alert_sender, "ANSWER_S", 0.5)
    changes: dict[str, Any] = {
        "alerts_mail_server": f"127.0.0.1:{post[2]}",
        "alerts_mail_tls": False,
        "alerts_mail_to": ["ops@example.org"],
    }
    async with await asyncio.start_server(partial(drip, begin=begin, piece=piece), "127.0.0.1", 0) as server:
        changes["alerts_webhook"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        async with running_cluster(database_url, **changes) as cluster:
            await cluster.add_node()
            async with asyncio.timeout(5):
                await told(cluster, "fail")
                await told(cluster, "warn")
                await later(cluster, 1)
            async with cluster.database.reading() as db:
                left = (await db.scalars(select(HealthAlert.channel))).all()
    assert len(post[0].mails) == 2
    assert left == ["webhook", "webhook"][: 2 * waits]


async def test_a_mail_server_that_never_ends_is_left(
    database_url: str, post: tuple[Post, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_sender, "RECEIVER_S", 0.5)
    greeting = partial(drip, begin=b"220-wait\r\n", piece=b"220-a moment\r\n")
    async with await asyncio.start_server(greeting, "127.0.0.1", 0) as server:
        changes: dict[str, Any] = {
            "alerts_webhook": f"http://127.0.0.1:{post[1]}/hook",
            "alerts_mail_server": f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "alerts_mail_to": ["ops@example.org"],
        }
        async with running_cluster(database_url, **changes) as cluster:
            await cluster.add_node()
            try:
                async with asyncio.timeout(5):
                    await told(cluster, "fail")
            finally:
                server.close()
    assert len(post[0].posted) == 1


@pytest.mark.parametrize("webhook", ["http://127.0.0.1:99999/hook", "http://[::1/hook", "http://127.0.0.1:1/hook"])
async def test_a_webhook_that_nobody_can_reach_keeps_no_mail(
    database_url: str, post: tuple[Post, int, int], webhook: str
) -> None:
    changes: dict[str, Any] = {
        "alerts_webhook": webhook,
        "alerts_mail_server": f"127.0.0.1:{post[2]}",
        "alerts_mail_tls": False,
        "alerts_mail_to": ["ops@example.org"],
    }
    async with running_cluster(database_url, **changes) as cluster:
        await cluster.add_node()
        async with asyncio.timeout(5):
            await told(cluster, "fail")
    assert len(post[0].mails) == 1


async def test_the_address_of_a_webhook_is_in_no_log(alerting: Cluster, post: tuple[Post, int, int]) -> None:
    post[0].status = 503
    with capture_logs() as logged:
        await told(alerting, "fail")
    [said] = [line["reason"] for line in logged if line["event"] == "an alert is not told yet"]
    assert said == "the webhook answers 503"
