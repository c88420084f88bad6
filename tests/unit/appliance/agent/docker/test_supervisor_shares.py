"""What the supervisor does about shares: containers that cannot be held, and shares that change while one runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.agent.docker import containers, inspections
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.images import Images
from appliance.agent.docker.leases import Leases
from appliance.agent.docker.mount_checks import MountChecks
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.labels import LABEL_ENFORCEMENT, name_of
from appliance.agent.listener import Strangers
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.shares.share_manager import PreparedShares
from appliance.agent.storages import Storages
from common.errors import ConflictError, InputError, NotFoundError, UnavailableError
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, ContainerStatus
from tests.fakes import packet_rules
from tests.fakes.node_networks import gang_networks
from tests.unit.appliance.agent.shares.test_share_manager import Node, gpu_share, stops
from tests.unit.appliance.gpu.samples import GPU, SECOND

pytestmark = pytest.mark.anyio


class Docker:
    """An engine whose containers run until they are stopped; `ends` lets them end by themselves at their start,
    `ends_at_inspection` when they are looked at. Without `stops` it cannot stop any.
    """

    boot = "boot-1"

    def __init__(self) -> None:
        self.inspections: dict[str, dict[str, Any]] = {}
        self.mount_points = MountPoints(Path("/nowhere"), [])
        self.ends = False
        self.stops = True
        self.ends_at_inspection = False

    def goes_on(self) -> bool:
        return True

    def create(self, spec: ContainerSpec, granted: object, part: PreparedShares, cgroup: str) -> None:
        labels = containers.creation(spec, needs=part.needs, kind=part.kind)["labels"]
        state = {"Status": "created", "Error": "", "ExitCode": 0, "Pid": 0}
        times = {"StartedAt": "2026-01-02T03:04:05Z", "FinishedAt": "0001-01-01T00:00:00Z"}
        self.inspections[spec.id] = {
            "Id": f"engine-{spec.id}",
            "Name": f"/{name_of(spec.id)}",
            "Config": {"Labels": labels},
            "HostConfig": {"Memory": 0},
            "State": {**state, **times},
        }

    def start(self, identity: str) -> ContainerState:
        self.inspections[identity]["State"] |= {"Status": "running", "Pid": 7}
        state = self.state(identity)
        if self.ends:
            self.stop(identity, 0)
        return state

    def stop(self, identity: str, grace_s: int) -> None:
        if not self.stops:
            raise UnavailableError("Docker is away")
        self.inspections[identity]["State"] |= {"Status": "exited", "Pid": 0}

    def remove(self, identity: str, grace_s: int) -> None:
        self.inspections.pop(identity, None)

    def inspect(self, identity: str) -> Mapping[str, Any]:
        if self.ends_at_inspection:
            self.stop(identity, 0)
        return self.inspections[identity]

    def inspect_all(self) -> list[Mapping[str, Any]]:
        return list(self.inspections.values())

    def state(self, identity: str) -> ContainerState:
        return inspections.state_of(self.inspections[identity])


class Supervised:
    """A supervisor of containers on two GPUs that a kind holds which a test lets refuse."""

    def __init__(self, folder: Path, docker: Docker | None = None) -> None:
        self.docker = docker or Docker()
        self.node = Node(folder, GPU, SECOND)
        engine = cast("DockerEngine", self.docker)
        forwarder = PortForwarder(
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            ("edge",),
            bind="127.0.0.1",
            port_range=(1, 1),
            strangers=Strangers(),
            most=9,
        )
        self.supervisor = Supervisor(
            engine,
            Images(engine, []),
            forwarder,
            shares=self.node.shares,
            gang_networks=gang_networks(),
            egress_policy=packet_rules.kept(),
            near={},
            node_cores=(0,),
            mount_checks=MountChecks([], Storages({}, {})),
            leases=Leases(Path("/nowhere")),
        )

    async def launch(self, identity: str, *gpu_shares: GpuShare) -> ContainerState:
        return await self.supervisor.launch(
            ContainerSpec(
                id=identity,
                session_id="s",
                session_name="n",
                project="p",
                user="u",
                image="i",
                gpus=list(gpu_shares),
            )
        )

    def state(self, identity: str) -> ContainerState:
        return next(state for state in self.supervisor.states() if state.id == identity)


async def test_a_new_container_that_cannot_be_held_is_stopped_and_says_why(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    node.node.shim.refuses = True
    await node.launch("c1", gpu_share(GPU, 250))
    assert node.docker.inspections["c1"]["State"]["Status"] == "exited"
    await node.supervisor.rebuild()
    state = node.state("c1")
    assert (state.status, state.error.startswith("no")) == (ContainerStatus.FAILED, True)


def fence(node: Supervised, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Let the kind hold containers before they start: their ids at the engine, and how each stood then."""
    met = []

    def fence(container: str, shares: object, engine_id: str) -> None:
        met.append((engine_id, node.docker.inspections[container]["State"]["Status"]))
        if node.node.shim.refuses:
            raise UnavailableError("no")

    monkeypatch.setattr(node.node.shim, "fences", True)
    monkeypatch.setattr(node.node.shim, "fence", fence)
    return met


async def test_a_kind_that_holds_containers_before_their_start_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Supervised(tmp_path)
    met = fence(node, monkeypatch)
    assert (await node.launch("c1", gpu_share(GPU, 250))).status is ContainerStatus.RUNNING
    assert met == [("engine-c1", "created")]


async def test_one_that_an_agent_before_has_made_is_held_before_its_start_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Supervised(tmp_path)
    await before.launch("c1", gpu_share(GPU, 250))
    before.docker.inspections["c1"]["State"] |= {"Status": "created", "Pid": 0}
    node = Supervised(tmp_path, before.docker)
    met = fence(node, monkeypatch)
    await node.supervisor.rebuild()
    assert met == [("engine-c1", "created")]
    assert node.state("c1").status is ContainerStatus.RUNNING


async def test_one_that_cannot_be_held_before_its_start_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Supervised(tmp_path)
    fence(node, monkeypatch)
    node.node.shim.refuses = True
    state = await node.launch("c1", gpu_share(GPU, 250))
    assert (state.status, state.error.startswith("no")) == (ContainerStatus.FAILED, True)
    assert node.docker.inspections["c1"]["State"]["Status"] == "created"


async def test_a_container_that_has_ended_before_it_could_be_held_has_not_failed(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    node.node.shim.refuses = node.docker.ends = True
    await node.launch("c1", gpu_share(GPU, 250))
    await node.supervisor.rebuild()
    assert (node.state("c1").status, node.state("c1").error) == (ContainerStatus.EXITED, "")


async def test_a_container_that_runs_already_goes_on_and_its_state_warns(tmp_path: Path) -> None:
    before = Supervised(tmp_path)
    await before.launch("c1", gpu_share(GPU, 250))
    node = Supervised(tmp_path, before.docker)
    node.node.shim.refuses = True
    await node.supervisor.rebuild()
    assert (node.state("c1").status, node.state("c1").warning) == (ContainerStatus.RUNNING, "no.")
    node.node.shim.refuses = False
    await node.supervisor.rebuild()
    assert node.state("c1").warning == ""


async def test_a_change_that_cannot_be_held_is_taken_back(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    await node.launch("c1", gpu_share(GPU, 250))
    node.node.shim.refuses = True
    with pytest.raises(UnavailableError):
        await node.supervisor.resize("c1", [gpu_share(GPU, 750)])
    assert node.state("c1").gpus == [gpu_share(GPU, 250)]
    await node.launch("c2", gpu_share(GPU, 750))


async def test_two_that_grow_at_once_never_get_more_than_the_gpu(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    await node.launch("c1", gpu_share(GPU, 250))
    await node.launch("c2", gpu_share(GPU, 250))
    answers = await asyncio.gather(
        *(node.supervisor.resize(identity, [gpu_share(GPU, 750)]) for identity in ("c1", "c2")), return_exceptions=True
    )
    assert [type(answer) for answer in answers].count(ConflictError) == 1
    assert sum(state.gpus[0].milli for state in node.supervisor.states()) == 1000


async def test_only_what_runs_can_change(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    with pytest.raises(NotFoundError):
        await node.supervisor.resize("c1", [gpu_share(GPU, 250)])
    await node.launch("c1", gpu_share(GPU, 250))
    with pytest.raises(InputError):
        await node.supervisor.resize("c1", [gpu_share(SECOND, 250)])
    node.docker.stop("c1", 0)
    await node.supervisor.rebuild()
    with pytest.raises(ConflictError, match="does not run"):
        await node.supervisor.resize("c1", [gpu_share(GPU, 500)])


async def test_a_container_that_ends_during_a_change_is_in_conflict_with_it(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    await node.launch("c1", gpu_share(GPU, 250))
    node.docker.ends_at_inspection = True
    with pytest.raises(ConflictError, match="does not run"):
        await node.supervisor.resize("c1", [gpu_share(GPU, 500)])
    assert node.state("c1").gpus == [gpu_share(GPU, 250)]


async def test_a_container_that_could_not_be_stopped_is_not_blamed_for_its_later_end(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    await node.launch("c1", gpu_share(GPU, 250))
    node.docker.stops = False
    with pytest.raises(UnavailableError):
        await node.supervisor.end("c1", "too much memory")
    node.docker.stops = True
    node.docker.stop("c1", 0)
    await node.supervisor.rebuild()
    assert (node.state("c1").status, node.state("c1").error) == (ContainerStatus.EXITED, "")


async def test_a_container_that_was_stopped_says_why(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    await node.launch("c1", gpu_share(GPU, 250))
    await node.supervisor.end("c1", "too much memory")
    await node.supervisor.rebuild()
    assert (node.state("c1").status, node.state("c1").error) == (ContainerStatus.FAILED, "too much memory")


async def test_an_ended_container_lets_go_of_its_shares(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    await node.launch("c1", gpu_share(GPU, 1000))
    node.docker.stop("c1", 0)
    await node.supervisor.rebuild()
    await node.launch("c2", gpu_share(GPU, 1000))
    await until(lambda: "c1" not in node.node.shares.holdings)
    assert set(node.node.shim.removed) == {"c1"}


async def test_an_agent_that_starts_ends_daemons_that_nobody_needs(tmp_path: Path) -> None:
    node = Supervised(tmp_path)
    node.node.leave_daemons(GPU, SECOND)
    await node.supervisor.rebuild()
    assert node.node.asked == stops(GPU, SECOND)


async def test_daemons_of_the_multi_process_service_end_after_the_last_container_that_they_hold(tmp_path: Path) -> None:
    before = Supervised(tmp_path)
    await before.launch("c1", gpu_share(GPU, 250))
    before.docker.inspections["c1"]["Config"]["Labels"][LABEL_ENFORCEMENT] = "mps"
    node = Supervised(tmp_path, before.docker)
    node.node.leave_daemons(GPU)
    await node.supervisor.rebuild()
    assert node.state("c1").enforcement is Enforcement.MPS
    assert node.node.asked == []
    await node.supervisor.remove("c1", 0)
    await until(lambda: bool(node.node.asked))
    assert node.node.asked == stops(GPU)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in a task of the supervisor."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
