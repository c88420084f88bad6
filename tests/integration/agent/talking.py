"""Commands that run in a container of an agent, and the wait for what it does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlencode

from common.protocol import ExecControl
from tests.integration.agent.conftest import Agent
from tests.websocket import WebSocket, connect


def open_exec(agent: Agent, identity: str, command: list[str], **options: Any) -> AbstractContextManager[WebSocket]:
    query = urlencode({"command": json.dumps(command), **options})
    uri = f"wss://127.0.0.1:{agent.port}/v1/containers/{identity}/exec?{query}"
    return connect(uri, ssl=agent.context(options.pop("name", "master")), compression=None)


def drain(connection: WebSocket) -> tuple[bytes, ExecControl]:
    output = b""
    while True:
        frame = connection.recv(timeout=60)
        if isinstance(frame, str):
            return output, ExecControl.model_validate_json(frame)
        output += frame


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
