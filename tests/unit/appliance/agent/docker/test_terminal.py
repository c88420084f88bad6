"""Commands that are hung up when who looked at them has gone."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.agent.docker import terminal
from appliance.agent.docker.engine_calls import EngineAwayError
from appliance.agent.docker.terminal import Terminal
from common.errors import NotFoundError, PenstockError

pytestmark = pytest.mark.anyio


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    """A command that leads a group of its own, as in a container, and ends at what the tests themselves may ignore."""
    process = subprocess.Popen(["env", "--default-signal=HUP", "sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


class Engine:
    """An engine that refuses so many times to say what became of its one command."""

    api_version = "1.41"

    def __init__(self, socket: Path, pid: int, *refusals: PenstockError) -> None:
        self.socket = str(socket)
        self.pid = pid
        self.refusals = list(refusals)

    def exec_create(self, identity: str, command: list[str], *, tty: bool) -> str:
        return "one"

    def exec_inspect(self, exec_id: str) -> dict[str, Any]:
        if self.refusals:
            raise self.refusals.pop(0)
        return {"Running": True, "Pid": self.pid, "ExitCode": None}


def away() -> EngineAwayError:
    return EngineAwayError("the Docker Engine does not answer: read timed out", where="Docker", hint="wait")


@asynccontextmanager
async def opened(engine: Engine) -> AsyncIterator[None]:
    """Look at the command, and go away at the end."""

    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(upgrade, engine.socket)
    async with server, Terminal(cast("Any", engine), "container", ["sleep", "600"], tty=False):
        yield


async def test_who_goes_away_ends_the_command(command: subprocess.Popen[bytes], tmp_path: Path) -> None:
    async with opened(Engine(tmp_path / "socket", command.pid)):
        assert command.poll() is None
    assert command.wait(10) == -1


async def test_an_engine_that_is_away_for_a_moment_lets_no_command_run_on(
    command: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_PATIENCE_S", 0.001)
    async with opened(Engine(tmp_path / "socket", command.pid, away(), away())):
        assert command.poll() is None
    assert command.wait(10) == -1


async def test_a_command_whose_container_is_gone_is_asked_for_once(
    command: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    engine = Engine(tmp_path / "socket", command.pid, NotFoundError("no such exec", where="container", hint="look"))
    async with opened(engine):
        pass
    assert command.poll() is None
