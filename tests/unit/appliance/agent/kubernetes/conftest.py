"""A cluster without sockets: the fake one answers httpx itself."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.cluster_info import base_node_info
from appliance.agent.kubernetes.pod_ports import PodPorts
from appliance.agent.kubernetes.pod_settings import PodSettings
from appliance.agent.kubernetes.pod_supervisor import PodSupervisor
from common.errors import UnavailableError
from common.protocol import ContainerSpec
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_machines import RESOURCE
from tests.kubernetes_site import MANIFESTS

REGISTRY = "registry.site"
IMAGE = f"{REGISTRY}/python:3.11"
POD_SETTINGS = PodSettings(node="k8s1", resource=RESOURCE, registries=[REGISTRY])


@pytest.fixture
def fake() -> FakeKubernetes:
    """Two machines with two GPUs each."""
    fake = FakeKubernetes()
    fake.grant(MANIFESTS)
    for name in ("left", "right"):
        fake.add_node(name, cpu="4", memory="16Gi", gpus=2)
    return fake


@pytest.fixture
async def client(fake: FakeKubernetes, tmp_path: Path) -> AsyncIterator[Client]:
    """A client that shows the token in `tmp_path`."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    transport = httpx.MockTransport(fake.handle)
    # without the system's authorities, which nobody is asked for and which take long to load
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = Client("https://cluster", token, context, namespace="penstock", transport=transport)
    yield client
    await client.close()


class Gate:
    """Offers ports of pods to nobody: port N is behind 50000 + N, unless it is `shut`."""

    def __init__(self) -> None:
        self.open_for: dict[str, str] = {}
        self.shut = False

    async def open(self, identity: str, address: str, ports: Sequence[int]) -> dict[int, int]:
        if self.shut:
            raise UnavailableError(f"port {ports[0]} of {identity} cannot be offered")
        self.open_for[identity] = address
        return {port: 50000 + port for port in ports}

    async def close(self, identity: str) -> None:
        self.open_for.pop(identity, None)

    async def close_all(self) -> None:
        self.open_for.clear()


def make_cluster(
    client: Client, *, pod_settings: PodSettings = POD_SETTINGS, schedule_s: float = 0.3, gate: Gate | None = None
) -> PodSupervisor:
    """Return a cluster of which nothing is known yet."""
    base = base_node_info("k8s1", region="", switch="", started_at=datetime.now(UTC))
    settings = dataclasses.replace(pod_settings, schedule_s=schedule_s)
    return PodSupervisor(client, settings, base, PodPorts(gate or Gate()))


@pytest.fixture
def gate() -> Gate:
    """What stands before the ports of pods."""
    return Gate()


@pytest.fixture
async def cluster(client: Client, gate: Gate) -> AsyncIterator[PodSupervisor]:
    """A cluster that is followed."""
    cluster = make_cluster(client, gate=gate)
    await cluster.rebuild()
    task = asyncio.create_task(cluster.watch())
    yield cluster
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, and return what it gave."""
    async with asyncio.timeout(60):
        # what is waited for is told by nobody
        while not (value := condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return value


def make(*places: str, **changes: Any) -> ContainerSpec:
    """Return a spec that was given places for GPUs."""
    wanted: dict[str, Any] = {
        "id": "c1",
        "session_id": "s1",
        "session_name": "train",
        "project": "team-a",
        "user": "kim",
        "image": IMAGE,
        "gpus": [{"uuid": place, "index": index, "milli": 1000} for index, place in enumerate(places)],
    }
    return ContainerSpec.model_validate(wanted | changes)
