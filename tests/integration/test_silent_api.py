"""Commands of this machine against an API that takes a connection and never answers it, over real TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.cli import remote_command
from appliance.client import Client
from appliance.client.place import Place
from common.errors import UnavailableError
from tests.integration.agent.conftest import Authority, authority  # noqa: F401


@pytest.fixture
def silent_port(authority: Authority) -> Iterator[int]:  # noqa: F811
    """The port of a server that ends each handshake, which sends tickets of TLS 1.3, and then says nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("silent"))
    held = []

    def serve() -> None:
        while True:
            try:
                held.append(listening.accept()[0])
            except OSError:
                return

    with context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def test_an_api_that_does_not_answer_is_given_up(authority: Authority, silent_port: int) -> None:  # noqa: F811
    client = Client(f"https://127.0.0.1:{silent_port}", ca=authority.ca.read_text(), answer_s=1)
    told: list[Any] = []

    def enter() -> None:
        try:
            with remote_command.running(Place(client, "desk", "team"), ["true"]):
                pass
        except UnavailableError as error:
            told.append(error)

    caller = threading.Thread(target=enter, daemon=True)
    caller.start()
    caller.join(20)
    assert not caller.is_alive()
    assert [str(silent_port) in str(error) for error in told] == [True]
