"""Ports of containers; what needs sockets is in the integration tests."""

from __future__ import annotations

import ssl

import pytest

from appliance.agent.listener import Strangers
from appliance.agent.port_forwarding import PortForwarder, take_named
from common.errors import UnavailableError


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_container_without_an_address_is_not_taken_for_this_machine() -> None:
    forwarder = PortForwarder(
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ("master",),
        bind="127.0.0.1",
        port_range=(57000, 57999),
        strangers=Strangers(),
        most=9,
    )
    with pytest.raises(UnavailableError, match="no address"):
        await forwarder.open("c1", "", [8888])
    await forwarder.close("c1")


HEAD = "GET / HTTP/1.1\r\nHost: site:9443\r\n{}Accept: */*\r\n\r\n"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ("X-Penstock-Container: c1\r\n", "c1"),
        ("x-penstock-container:c1  \r\n", "c1"),
        ("", ""),
        ("X-Penstock-Container: c1\r\nX-Penstock-Container: c2\r\n", ""),
        ("X-Other: X-Penstock-Container: c1\r\n", ""),
        ("X-Penstock-Container : c1\r\n", ""),
    ],
)
def test_the_head_of_a_request_names_one_container_or_none(fields: str, wanted: str) -> None:
    assert take_named(HEAD.format(fields).encode())[0][0] == wanted


def test_the_container_does_not_see_how_it_was_named() -> None:
    head = HEAD.format("X-Penstock-Container: c1\r\nCookie: X-Penstock-Container: c1\r\n")
    assert take_named(head.encode())[1] == HEAD.format("Cookie: X-Penstock-Container: c1\r\n").encode()


def test_the_head_names_who_calls_and_the_container_does_not_see_that() -> None:
    head = HEAD.format("X-Penstock-Container: c1\r\nX-Penstock-Caller: logins:1\r\n")
    assert take_named(head.encode()) == (("c1", "logins:1"), HEAD.format("").encode())
    assert take_named(HEAD.format("X-Penstock-Caller: a\r\nX-Penstock-Caller: b\r\n").encode())[0] == ("", "")
