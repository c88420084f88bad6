"""Calls of an agent that its tests share."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx

from common.protocol import ContainerSpec, ContainerState, ContainerStatus


def put(client: httpx.Client, spec: ContainerSpec) -> httpx.Response:
    return client.put(f"/v1/containers/{spec.id}", json=spec.model_dump(mode="json"))


def launch(client: httpx.Client, spec: ContainerSpec) -> ContainerState:
    answer = put(client, spec)
    assert answer.status_code == 200, answer.text
    return ContainerState.model_validate_json(answer.content)


def states(client: httpx.Client) -> dict[str, ContainerState]:
    found = client.get("/v1/containers").raise_for_status().json()
    return {state["id"]: ContainerState.model_validate(state) for state in found}


def wait_for(client: httpx.Client, identity: str, status: ContainerStatus, timeout_s: float = 60) -> ContainerState:
    deadline = time.monotonic() + timeout_s
    while (state := states(client).get(identity)) is None or state.status is not status:
        assert time.monotonic() < deadline, f"{identity} is {state}, not {status}"
        time.sleep(0.05)
    return state


def log_of(client: httpx.Client, identity: str, timeout_s: float = 60) -> str:
    """Return the log of a container that has come to its end."""
    wait_for(client, identity, ContainerStatus.EXITED, timeout_s)
    return client.get(f"/v1/containers/{identity}/logs").text


def suspend(pid: int) -> None:
    """Stop a process, and wait until it has: a signal is sent, and heard afterwards."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)
