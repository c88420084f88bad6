"""What an administrator's commands say when the server of uploads does not answer as hoped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from common.errors import InputError, NotFoundError, PenstockError, UnauthenticatedError, UnavailableError
from reservoir.serving.uploads.server import Server, connect


def server(answer: Callable[[httpx.Request], httpx.Response]) -> Server:
    return Server(httpx.Client(transport=httpx.MockTransport(answer), base_url="http://uploads"))


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (httpx.Response(401), UnauthenticatedError, "administrator's password"),
        (httpx.Response(403), UnauthenticatedError, "administrator's password"),
        (httpx.Response(400, json={"message": "too short"}), InputError, "too short"),
        (httpx.Response(502, text="<html>"), InputError, "Bad Gateway"),
    ],
)
def test_a_refusal_is_told(answer: httpx.Response, error: type[PenstockError], words: str) -> None:
    with pytest.raises(error, match=words):
        server(lambda _: answer).accounts()


@pytest.mark.parametrize("name", ["ada/own", "+api", "../root", "ada?x", "Ada", ""])
def test_an_account_has_a_plain_name(name: str) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"result": {}})

    with pytest.raises(InputError, match="not a name for an account"):
        server(answer).add_account(name)
    assert not asked


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    path, password = tmp_path / "index.sock", tmp_path / "password"
    password.write_text("secret")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    with pytest.raises(UnavailableError, match="systemctl status penstock-index"), connect(path, password) as admin:
        admin.accounts()


def test_a_node_without_the_server(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="reservoir node"), connect(tmp_path / "none", tmp_path / "password"):
        pass


def test_a_password_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "index.sock").touch()
    with pytest.raises(NotFoundError, match="run it as root"), connect(tmp_path / "index.sock", tmp_path / "password"):
        pass
