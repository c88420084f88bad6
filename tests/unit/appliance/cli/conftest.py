"""The command line against an API that is answered in this process, without a socket."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

import appliance.client.transport
from appliance.cli import config, main
from appliance.client.transport import Transport
from appliance.site import commands
from common import problem
from common.errors import Problem

URL = "https://master1:56789"


@dataclass(frozen=True)
class Call:
    """What the API was asked."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


class Answer(io.BytesIO):
    """What an API answers: as much of an HTTP response as the client reads."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(body)
        self.status = status
        self.headers = Message()
        for name, value in headers.items():
            self.headers[name] = value


@dataclass
class FakeApi:
    """Answers by method and path; everything else is an error of the test."""

    answers: dict[tuple[str, str], tuple[int, Any, dict[str, str]]] = field(default_factory=dict)
    later: dict[str, tuple[int, Any, dict[str, str]]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    trouble: OSError | None = None

    def on(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[method, "/api/v1" + path] = status, body, named

    def then(self, method: str, path: str, body: Any = None) -> None:
        """Answer the call after the next one so, and every later one."""
        self.later["/api/v1" + path] = 200, body, {}

    def refuse(self, method: str, path: str, status: int, where: str, reason: str, hint: str) -> None:
        told = problem.item(Problem(where, reason, hint), {where.split(".", maxsplit=1)[0]})
        self.on(method, path, problem.document(status, [told], "r1"), status)

    @property
    def last(self) -> Call:
        return self.calls[-1]

    def connect(self, _client: Transport, _timeout_s: float | None) -> FakeConnection:
        if self.trouble:
            raise self.trouble
        return FakeConnection(self)


class FakeConnection:
    """One connection to the fake API."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.call: Call

    def request(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> None:
        parts = urlsplit(target)
        body = None if content is None else json.loads(content)
        self.call = Call(method, parts.path, dict(parse_qsl(parts.query)), body, headers)
        self.api.calls.append(self.call)

    def getresponse(self) -> Answer:
        place = self.call.method, self.call.path
        status, body, headers = self.api.answers[place]
        if self.call.path in self.api.later:
            self.api.answers[place] = self.api.later.pop(self.call.path)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Answer(status, content, headers)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApi:
    """The API that every command of the test calls."""
    fake = FakeApi()
    monkeypatch.setattr(appliance.client.transport, "connect", fake.connect)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    return fake


@pytest.fixture
def logged_in(api: FakeApi) -> FakeApi:
    """The same, with a login to it that has the current project team-a."""
    config.save(config.Config(URL, "pk_secret", "key-1", project="team-a"))
    return api


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run the command as a user does; return exit code, standard output and standard error."""

    def invoke(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return invoke


@pytest.fixture(autouse=True)
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[str, str, bool]]]:
    """Return what commands leave for the audit log: command, object, and whether it went well."""
    state = tmp_path / "noted"
    monkeypatch.setattr(commands, "STATE", state)
    return lambda: [(told.command, told.object, told.ok) for told in commands.over(state)]
