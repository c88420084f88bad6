"""A supervisor with a Docker Engine that answers as a test says."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, cast

from appliance.agent.docker import containers
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.images import Images
from appliance.agent.docker.inspections import NEVER
from appliance.agent.docker.leases import Leases
from appliance.agent.docker.mount_checks import MountChecks
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.labels import LABEL_ID
from appliance.agent.listener import Strangers
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.shares.share_manager import ShareManager
from appliance.agent.storages import Storages
from appliance.gpu.devices import Gpus
from common.errors import PenstockError
from common.protocol import ContainerSpec, ContainerState, ContainerStatus
from tests.fakes import packet_rules
from tests.fakes.node_networks import NodeNetworks, gang_networks

SPEC = ContainerSpec(id="c1", session_id="s1", session_name="demo", project="team-a", user="alice", image="python:3.11")

SUBNET = IPv4Network("100.96.0.32/27")

STARTED = "2026-01-02T03:04:05Z"

RUNNING = ContainerState(id="c1", session_id="s1", status=ContainerStatus.RUNNING)

LINE = "NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC"

EXITED = ContainerState(id="c1", session_id="s1", status=ContainerStatus.EXITED, exit_code=0)


class Stream:
    """What Docker sends bit by bit; an error is raised in its turn, `None` ends the stream."""

    def __init__(self) -> None:
        self.items: queue.Queue[Any] = queue.Queue()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = self.items.get(timeout=5)
        if isinstance(item, Exception):
            raise item
        if item is None:
            raise StopIteration
        return item

    def close(self) -> None:
        self.items.put(None)


class FakeEngine:
    """One container; `started` and `stopped` hold back the answers to its start and its removal until the test lets
    them go, and `listed` that to a list, after it has been made. One that `breaks` makes none; one that `ends` answers
    and takes no new calls.
    """

    boot = "boot-1"

    def __init__(self) -> None:
        self.stream = Stream()
        self.mount_points = MountPoints(Path("/nowhere"), [])
        self.started = threading.Event()
        self.streams = 0
        self.found: list[Mapping[str, Any]] = []
        self.stopped = threading.Event()
        self.lists = threading.Event()
        self.listed = threading.Event()
        self.listed.set()
        self.breaks = False
        self.ends = False
        self.refusal: PenstockError | None = None
        self.log = Stream()
        self.cgroup = ""
        self.graces: list[int] = []

    def goes_on(self) -> bool:
        return not self.ends

    def events(self) -> Stream:
        self.streams += 1
        return self.stream

    def inspect(self, identity: str) -> Mapping[str, Any]:
        return {}

    def inspect_all(self) -> list[Mapping[str, Any]]:
        told = self.found
        self.lists.set()
        self.listed.wait(120)
        return told

    def create(self, spec: ContainerSpec, granted: object, part: object, cgroup: str) -> None:
        self.cgroup = cgroup
        if self.breaks:
            raise KeyError("what nobody expected")
        if self.refusal:
            raise self.refusal

    def remove(self, identity: str, grace_s: int) -> None:
        self.stopped.wait(120)

    def stop(self, identity: str, grace_s: int) -> None:
        self.graces.append(grace_s)

    def start(self, identity: str) -> ContainerState:
        self.started.wait(120)
        return RUNNING

    def state(self, identity: str) -> ContainerState:
        return EXITED.model_copy(update={"id": identity})

    def logs(self, identity: str, *, follow: bool, tail: int | None) -> Stream:
        if follow:
            return self.log
        stream = Stream()
        stream.items.put(b"all of it\n")
        stream.items.put(None)
        return stream


def found(identity: str, **labels: str) -> dict[str, Any]:
    """What Docker tells of a container that runs, with some labels as an image has them."""
    spec = SPEC.model_copy(update={"id": identity})
    made = containers.creation(spec)["labels"] | {f"io.penstock.{name}": text for name, text in labels.items()}
    return {
        "Name": f"/penstock-{identity}",
        "Config": {"Labels": made},
        "State": {"Status": "running", "Error": "", "ExitCode": 0, "StartedAt": STARTED, "FinishedAt": NEVER},
        "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.2"}}},
    }


def ended(identity: str, code: int = 0) -> dict[str, Any]:
    """What Docker tells of a container that has come to its end."""
    state = {"Status": "exited", "Error": "", "ExitCode": code, "StartedAt": STARTED, "FinishedAt": STARTED}
    return found(identity) | {"State": state}


def event(action: str, identity: str = "c1") -> dict[str, Any]:
    return {"Action": action, "Actor": {"Attributes": {LABEL_ID: identity}}}


def supervise(
    engine: FakeEngine,
    node: NodeNetworks | None = None,
    egress_policy: EgressPolicy | None = None,
    leases: Leases | None = None,
) -> Supervisor:
    real = cast("DockerEngine", engine)
    forwarder = PortForwarder(
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ("edge",),
        bind="127.0.0.1",
        port_range=(1, 1),
        strangers=Strangers(),
        most=9,
    )
    shares = ShareManager(Gpus(), [], {}, [], Path("/nowhere"))
    return Supervisor(
        real,
        Images(real, []),
        forwarder,
        shares=shares,
        gang_networks=gang_networks(node),
        egress_policy=egress_policy or packet_rules.kept(),
        near={},
        node_cores=(0, 1),
        mount_checks=MountChecks([Path("/srv")], Storages({}, {})),
        leases=leases or Leases(Path("/nowhere")),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in the supervisor's threads
            await asyncio.sleep(0.005)
