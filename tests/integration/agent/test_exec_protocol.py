"""Commands that run in a container: their input, output, terminal, and exit code."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import docker
import pytest

from common.protocol import ContainerSpec
from tests.integration.agent.calls import launch
from tests.integration.agent.conftest import Agent
from tests.integration.agent.talking import drain, open_exec, until
from tests.websocket import connect

Make = Callable[..., ContainerSpec]


def test_exec_carries_input_output_and_exit_code(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
    with open_exec(agent, wanted.id, ["sh", "-c", "cat; echo error >&2; exit 3"]) as connection:
        connection.send(b"some input\n")
        # the engine keeps the order within each of the two streams alone
        assert connection.recv(timeout=60) == b"some input\n"
        connection.send('{"type": "eof"}')
        output, last = drain(connection)
    assert output == b"error\n"
    assert (last.type, last.code) == ("exit", 3)


def test_what_is_run_in_a_session_is_in_no_log(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
        assert client.get("/v1/nothing", params={"command": "tea-leaves"}).status_code == 501
    with open_exec(agent, wanted.id, ["echo", "tea-leaves"]) as connection:
        assert drain(connection)[0] == b"tea-leaves\n"
    assert "tea-leaves" not in agent.log.read_text()


def test_exec_with_a_terminal_has_its_size_and_can_be_resized(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
    with open_exec(agent, wanted.id, ["sh"], tty=1, rows=31, cols=97) as connection:
        connection.send(b"stty size; read go; stty size; exit 5\n")
        output = b""
        while b"31 97" not in output:
            output += connection.recv(timeout=60)
        connection.send('{"type": "resize", "rows": 40, "cols": 132}')
        connection.send(b"\n")
        output, last = drain(connection)
    assert b"40 132" in output
    assert (last.type, last.code) == ("exit", 5)


def test_exec_that_writes_much_and_ends_at_once_loses_nothing(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
    for _ in range(5):
        with open_exec(agent, wanted.id, ["seq", "1", "20000"]) as connection:
            output, last = drain(connection)
        assert output == b"".join(b"%d\n" % number for number in range(1, 20001))
        assert last.code == 0


def test_command_whose_caller_went_away_is_hung_up(agent: Agent, spec: Make, engine: docker.DockerClient) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
    container = engine.containers.get(f"penstock-{wanted.id}")
    with open_exec(agent, wanted.id, ["sleep", "999"], tty=1):
        until(lambda: "sleep 999" in str(container.top()))
    until(lambda: "sleep 999" not in str(container.top()))


def test_exit_code_of_a_command_that_closes_its_output_long_before_it_ends(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
    with open_exec(agent, wanted.id, ["sh", "-c", "echo out; exec >&- 2>&-; sleep 2; exit 9"]) as connection:
        output, last = drain(connection)
    assert (output, last.code) == (b"out\n", 9)


@pytest.mark.parametrize(("command", "reason"), [("[]", "JSON list"), ("bash", "JSON list")])
def test_exec_of_a_bad_command_says_so(agent: Agent, spec: Make, command: str, reason: str) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
    uri = f"wss://127.0.0.1:{agent.port}/v1/containers/{wanted.id}/exec?{urlencode({'command': command})}"
    with connect(uri, ssl=agent.context()) as connection:
        _, last = drain(connection)
    assert last.type == "error"
    assert reason in last.reason


def test_exec_in_an_unknown_container_says_so(agent: Agent) -> None:
    with open_exec(agent, "nobody", ["sh"]) as connection:
        _, last = drain(connection)
    assert last.type == "error"
    assert "nobody" in last.reason
