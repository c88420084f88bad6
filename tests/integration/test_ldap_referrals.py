"""Directories that lead elsewhere: nobody is asked but the server of the settings, and nothing is said in clear."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.auth import directory
from api.settings import Settings
from common.errors import UnavailableError
from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.slapd import BASE, PEOPLE, SECRET, Slapd, searching, settings_of

pytestmark = pytest.mark.anyio

REFERRAL = 10
"""The result by which a server says that another one knows (RFC 4511)."""


class Listener:
    """A host to which a referral leads; `heard` is what came in, also where that was nothing but a connection."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(2)
                self.heard.append(b"")
                try:
                    self.heard.append(connection.recv(4096))
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def elsewhere() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def field(tag: int, content: bytes) -> bytes:
    """Return a field of BER with less than 128 bytes."""
    assert len(content) < 128
    return bytes([tag, len(content)]) + content


def referring(request: bytes, url: str) -> bytes:
    """Return the answer to a bind that refers to `url`."""
    number = request[request.index(b"\x02") :][:3]
    result = field(0x0A, bytes([REFERRAL])) + field(0x04, b"") * 2 + field(0xA3, field(0x04, url.encode()))
    return field(0x30, number + field(0x61, result))


@contextmanager
def directory_that_refers(authority: Authority, url: str) -> Iterator[int]:  # noqa: F811
    """Run a server with a good certificate that answers each bind with a referral; give its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("directory"))
    listening = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(referring(connection.recv(4096), url))
                connection.recv(4096)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()


@pytest.fixture
def branch(slapd: Slapd, elsewhere: Listener) -> Iterator[str]:
    """A part of the directory that another host has; gives its name."""
    dn = f"ou=elsewhere,{PEOPLE}"
    url = f"ldap://127.0.0.1:{elsewhere.port}/{dn}"
    slapd.modify(
        f"dn: {dn}\nchangetype: add\nobjectClass: referral\nobjectClass: extensibleObject\nou: elsewhere\nref: {url}\n"
    )
    yield dn
    slapd.modify(f"dn: {dn}\ncontrol: 2.16.840.1.113730.3.4.2\nchangetype: delete\n")


async def ask(slapd: Slapd, **changes: Any) -> object:
    return await directory.person(Settings(**settings_of(slapd, **changes)), "carol", SECRET)


async def test_a_bind_that_is_referred_ends_there(
    slapd: Slapd,
    elsewhere: Listener,
    authority: Authority,  # noqa: F811
) -> None:
    url = f"ldap://127.0.0.1:{elsewhere.port}/"
    with directory_that_refers(authority, url) as port, pytest.raises(UnavailableError):
        await ask(slapd, ldap_url=f"ldaps://127.0.0.1:{port}")
    assert elsewhere.heard == []


@pytest.mark.parametrize("setting", ["ldap_admin_group", "ldap_auditor_group"])
async def test_no_other_host_says_who_administers(slapd: Slapd, elsewhere: Listener, branch: str, setting: str) -> None:
    with pytest.raises(UnavailableError):
        await ask(slapd, **{"ldap_admin_group": None, "ldap_auditor_group": None, setting: f"cn=chiefs,{branch}"})
    assert elsewhere.heard == []


async def test_no_other_host_says_who_somebody_is(
    slapd: Slapd, elsewhere: Listener, branch: str, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError):
        await ask(slapd, **searching(tmp_path) | {"ldap_search_base": branch})
    assert elsewhere.heard == []


async def test_a_search_that_finds_referrals_too_is_content_with_what_is_here(
    slapd: Slapd, elsewhere: Listener, branch: str, tmp_path: Path
) -> None:
    assert branch.endswith(PEOPLE)
    assert await ask(slapd, **searching(tmp_path), ldap_admin_group=f"cn=admins,ou=groups,{BASE}") is not None
    assert elsewhere.heard == []
