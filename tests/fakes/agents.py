"""Simulated node agents: many in one asyncio loop, with containers that exist only in memory.

They speak the agents' protocol over mutual TLS, and report either over TLS with a certificate of their own or, as the
edge passes it on, on the API's unix socket.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from api.clock import now
from appliance.agent.reports.heartbeat import own_delay_after
from common.protocol import (
    HEARTBEAT_PATH,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    GpuDevice,
    GpuShares,
    Heartbeat,
    HeartbeatReply,
    ImageRequest,
    ImageState,
    ImageStatus,
    NodeInfo,
)
from tests.fakes.http import Answer, Client, Request, Server, problem

T = TypeVar("T")
Issue = Callable[[str], tuple[Path, Path]]

LIVE = (ContainerStatus.PULLING, ContainerStatus.CREATING, ContainerStatus.RUNNING)


@dataclass(frozen=True)
class Way:
    """How agents reach the API: its unix socket, or its TLS port with the authority's certificates."""

    ca: Path
    issue: Issue
    port: int = 0
    socket: Path | None = None

    def client(self, name: str) -> Client:
        """Return an agent's connection."""
        if self.socket:
            return Client(socket=self.socket, headers={"X-Client-Verify": "SUCCESS", "X-Client-Name": name})
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(*map(str, self.issue(name)))
        return Client(port=self.port, context=context)


@dataclass
class Behaviour:
    """What a test may set of an agent, at any time; seconds.

    A container is `pull_s` pulling and `start_s` creating before it runs, takes `remove_s` to go away, and `resize_s`
    to get another share. `deaf` agents do not answer, `mute` ones do not report. `copies` of every heartbeat are sent;
    with `late` an older one follows each.
    """

    pull_s: float = 0.0
    start_s: float = 0.0
    remove_s: float = 0.0
    resize_s: float = 0.0
    deaf: bool = False
    mute: bool = False
    copies: int = 1
    late: bool = False


@dataclass
class FakeAgent:
    """One agent. `refused` lists what it could not take, such as a GPU given twice: a sound API never makes it."""

    name: str
    gpus: int
    way: Way
    behaviour: Behaviour
    port: int = 0
    node_info: NodeInfo | None = None
    containers: dict[str, ContainerState] = field(default_factory=dict)
    specs: dict[str, ContainerSpec] = field(default_factory=dict)
    launches: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    output: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start as a machine that was just switched on."""
        self.changed = asyncio.Event()
        self.interval_s = 5.0
        self.heartbeats = 0
        self._boot, self._sequence = uuid.uuid4().hex, 0
        self._server = Server(self._handle)
        self._reporting: asyncio.Task[None] | None = None
        self._starting: set[asyncio.Task[None]] = set()
        self._previous = b""
        if self.node_info is None:
            self.node_info = node_info(self.name, self.gpus)

    async def start(self, context: ssl.SSLContext, delay_s: float = 0.0) -> None:
        """Serve and report, first after a delay; containers that ran before run on."""
        self._boot, self._sequence = uuid.uuid4().hex, 0
        self.port = await self._server.start(self.port, context)
        self._reporting = asyncio.create_task(self._report(delay_s))

    async def stop(self) -> None:
        """Go away; the containers stay."""
        tasks = [*self._starting, *([self._reporting] if self._reporting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._server.close()
        self._reporting = None

    def exit(self, container_id: str, code: int = 0) -> None:
        """Let a container end."""
        self._set(container_id, status=ContainerStatus.EXITED, exit_code=code, finished_at=now())

    def heartbeat(self) -> Heartbeat:
        """Return the next heartbeat."""
        assert self.node_info is not None
        self._sequence += 1
        return Heartbeat(
            name=self.name,
            address="127.0.0.1",
            port=self.port,
            boot=self._boot,
            sequence=self._sequence,
            node_info=self.node_info,
            containers=list(self.containers.values()),
        )

    async def _report(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        client, failures = self.way.client(self.name), 0
        try:
            while True:
                self.changed.clear()
                if not self.behaviour.mute:
                    try:
                        await self._send(client)
                        failures = 0
                    except (OSError, EOFError, ValueError):
                        failures += 1
                delay_s = own_delay_after(failures) if failures else self.interval_s
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), delay_s)
                    await asyncio.sleep(0.02)
        finally:
            client.close()

    async def _send(self, client: Client) -> None:
        body = self.heartbeat().model_dump_json().encode()
        again = [self._previous] if self.behaviour.late and self._previous else []
        for part in [body] * self.behaviour.copies + again:
            answer = await client.call("POST", HEARTBEAT_PATH, part)
            if answer.status == 200:
                self.interval_s = HeartbeatReply.model_validate_json(answer.body).interval_s
            self.heartbeats += answer.status in (200, 204)
            if answer.status >= 500:
                raise OSError(answer.status)
        self._previous = body

    async def _handle(self, request: Request) -> Answer:
        if self.behaviour.deaf:
            raise EOFError
        parts = request.path.strip("/").split("/")
        match (request.method, parts):
            case ("GET", ["v1", "health"]):
                return Answer(200, b'{"status": "ok"}')
            case ("GET", ["v1", "containers"]):
                return Answer(200, json.dumps([state.model_dump(mode="json") for state in self.containers.values()]))
            case ("PUT", ["v1", "containers", identity, "gpus"]):
                await asyncio.sleep(self.behaviour.resize_s)
                return self._resize(identity, request.body)
            case ("PUT", ["v1", "containers", identity]):
                return self._launch(identity, request.body)
            case ("DELETE", ["v1", "containers", identity]):
                await asyncio.sleep(self.behaviour.remove_s)
                return self._remove(identity)
            case ("GET", ["v1", "containers", identity, "logs"]):
                if identity not in self.containers:
                    return problem(404, f"no container {identity}")
                return Answer(200, self.output.get(identity, f"log of {identity}\n".encode()))
            case ("PUT", ["v1", "images"]):
                wanted = ImageRequest.model_validate_json(request.body)
                state = ImageState(reference=wanted.reference, status=ImageStatus.READY, digest="sha256:0", size=1)
                return Answer(200, state.model_dump_json())
        return problem(404, f"no {request.path}")

    def _launch(self, identity: str, body: bytes) -> Answer:
        try:
            spec = ContainerSpec.model_validate_json(body)
        except ValidationError as error:
            return self._refuse(422, str(error))
        self.launches[identity] += 1
        if identity in self.specs:
            if self.specs[identity] != spec:
                return self._refuse(409, f"{identity} was launched from another specification")
            return Answer(200, self.containers[identity].model_dump_json())
        held = Counter[str]()
        for state in self.containers.values():
            if state.status in LIVE:
                held.update({share.uuid: share.milli for share in state.gpus})
        if any(held[share.uuid] + share.milli > 1000 for share in spec.gpus):
            return self._refuse(409, f"{identity} wants GPUs that are in use")
        self.specs[identity] = spec
        self.containers[identity] = ContainerState(
            id=identity, session_id=spec.session_id, status=ContainerStatus.CREATING, gpus=spec.gpus
        )
        if self.behaviour.pull_s or self.behaviour.start_s:
            if self.behaviour.pull_s:
                self._set(identity, status=ContainerStatus.PULLING)
            task = asyncio.create_task(self._come_up(identity))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
        else:
            self._run(identity)
        return Answer(200, self.containers[identity].model_dump_json())

    def _resize(self, identity: str, body: bytes) -> Answer:
        try:
            wanted = GpuShares.model_validate_json(body).gpus
        except ValidationError as error:
            return self._refuse(422, str(error))
        if identity not in self.containers:
            return problem(404, f"no container {identity}")
        if {share.uuid for share in wanted} != {share.uuid for share in self.containers[identity].gpus}:
            return self._refuse(409, f"{identity} has other GPUs")
        others = Counter[str]()
        for state in self.containers.values():
            if state.status in LIVE and state.id != identity:
                others.update({share.uuid: share.milli for share in state.gpus})
        if any(others[share.uuid] + share.milli > 1000 for share in wanted):
            return self._refuse(409, f"{identity} wants more of its GPUs than is free")
        if self.containers[identity].gpus != wanted:
            self._set(identity, gpus=wanted)
        return Answer(200, self.containers[identity].model_dump_json())

    async def _come_up(self, identity: str) -> None:
        await asyncio.sleep(self.behaviour.pull_s)
        self._set(identity, status=ContainerStatus.CREATING)
        await asyncio.sleep(self.behaviour.start_s)
        self._run(identity)

    def _run(self, identity: str) -> None:
        ports = {port: 20000 + port % 1000 for port in self.specs[identity].ports} if identity in self.specs else {}
        self._set(identity, status=ContainerStatus.RUNNING, started_at=now(), ports=ports)

    def _set(self, identity: str, **changes: Any) -> None:
        if identity in self.containers:
            self.containers[identity] = self.containers[identity].model_copy(update=changes)
            self.changed.set()

    def _remove(self, identity: str) -> Answer:
        self.specs.pop(identity, None)
        if self.containers.pop(identity, None):
            self.changed.set()
        return Answer(204, b"")

    def _refuse(self, status: int, reason: str) -> Answer:
        self.refused.append(reason)
        return problem(status, reason)


class FleetOfAgents:
    """Agents `worker1` to `workerN` in the running loop; `behaviour` is that of all that have none of their own."""

    def __init__(self, way: Way, count: int, *, gpus: int = 8, prefix: str = "worker") -> None:
        """Prepare the agents; nothing is started."""
        self.behaviour = Behaviour()
        self.agents = {
            name: FakeAgent(name, gpus, way, self.behaviour)
            for name in (f"{prefix}{number}" for number in range(1, count + 1))
        }
        self._context = _server_context(way)

    def __getitem__(self, name: str) -> FakeAgent:
        """Return one agent."""
        return self.agents[name]

    async def start(self, names: Sequence[str] | None = None, *, spread_s: float = 0.0) -> None:
        """Start some agents or all; their first heartbeats come within `spread_s`, in no order."""
        order = random.Random(1)
        for name in names or self.agents:
            await self.agents[name].start(self._context, order.uniform(0, spread_s))

    async def stop(self, names: Sequence[str] | None = None) -> None:
        """Stop some agents or all; their containers run on."""
        for name in names or self.agents:
            await self.agents[name].stop()

    async def restart(self, name: str) -> None:
        """Let an agent end and begin again while its containers run."""
        await self.stop([name])
        await self.start([name])

    def containers(self) -> dict[tuple[str, str], ContainerState]:
        """Return every container by node and id."""
        return {
            (agent.name, id_): state for agent in self.agents.values() for id_, state in agent.containers.copy().items()
        }

    def allocation(self) -> dict[tuple[str, str], int]:
        """Return the milli-GPU that live containers hold, by node and GPU."""
        held = Counter[tuple[str, str]]()
        for (name, _), state in self.containers().items():
            if state.status in LIVE:
                held.update({(name, share.uuid): share.milli for share in state.gpus})
        return dict(held)

    def refused(self) -> list[str]:
        """Return what any agent could not take."""
        return [reason for agent in self.agents.values() for reason in agent.refused]


class FleetThread:
    """A fleet in a thread with a loop of its own, for tests that are not asynchronous."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fleet: FleetOfAgents) -> None:
        """Use a running loop."""
        self._loop = loop
        self.fleet = fleet

    def start(self, *names: str) -> None:
        """Start some agents or all."""
        self._do(self.fleet.start(names or None))

    def stop(self, *names: str) -> None:
        """Stop some agents or all."""
        self._do(self.fleet.stop(names or None))

    def restart(self, name: str) -> None:
        """Restart one agent."""
        self._do(self.fleet.restart(name))

    def exit(self, name: str, container_id: str, code: int = 0) -> None:
        """Let a container end."""

        async def end() -> None:
            self.fleet[name].exit(container_id, code)

        self._do(end())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(60)


@contextmanager
def running_fleet(way: Way, count: int, *, gpus: int = 8) -> Iterator[FleetThread]:
    """Give a fleet whose agents are not started yet."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def make() -> FleetOfAgents:
        return FleetOfAgents(way, count, gpus=gpus)

    running = FleetThread(loop, asyncio.run_coroutine_threadsafe(make(), loop).result(60))
    try:
        yield running
    finally:
        running.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def node_info(name: str, gpus: int) -> NodeInfo:
    """Return a machine with so many simulated GPUs, eight cores each."""
    return NodeInfo(
        name=name,
        agent_version="0.1.0",
        engine_version="20.10.24",
        os="Debian 12",
        cpu_milli=max(gpus, 1) * 8000,
        memory_mib=max(gpus, 1) * 65536,
        gpus=[
            GpuDevice(
                index=index,
                uuid=f"GPU-{name}-{index}",
                model="Simulated GPU",
                memory_mib=16384,
                simulated=True,
                island=index // 4,
            )
            for index in range(gpus)
        ],
        region="lab",
        started_at=now(),
    )


def _server_context(way: Way) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(way.ca))
    context.load_cert_chain(*map(str, way.issue("fleet")))
    context.verify_mode = ssl.CERT_REQUIRED
    return context
