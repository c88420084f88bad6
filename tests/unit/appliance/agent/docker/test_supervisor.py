"""The supervisor with a Docker Engine that answers as a test says."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from appliance.agent.docker import containers, log_heads
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.images import Images
from appliance.agent.docker.inspections import NEVER
from appliance.agent.docker.leases import GRACE_S, Leases
from appliance.agent.docker.lifecycle import Lifecycle
from appliance.agent.docker.mount_checks import MountChecks
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.docker.rdma import MissingRdmaError
from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.labels import LABEL_ID
from appliance.agent.listener import Strangers
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.shares.share_manager import ShareManager
from appliance.agent.storages import Storages
from appliance.gpu.devices import Gpus
from common.errors import ConflictError, PenstockError
from common.lease_protocol import LEASE_ENDED
from common.nccl import NcclEvidence
from common.protocol import ENGINE_RESTARTED, ContainerSpec, ContainerState, ContainerStatus, GangNetwork, Mount
from tests.fakes import packet_rules
from tests.fakes.node_networks import NodeNetworks, gang_networks

pytestmark = pytest.mark.anyio

SPEC = ContainerSpec(id="c1", session_id="s1", session_name="demo", project="team-a", user="alice", image="python:3.11")
SUBNET = IPv4Network("100.96.0.32/27")
STARTED = "2026-01-02T03:04:05Z"
RUNNING = ContainerState(id="c1", session_id="s1", status=ContainerStatus.RUNNING)
LINE = "NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC"
EXITED = ContainerState(id="c1", session_id="s1", status=ContainerStatus.EXITED, exit_code=0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
        self.listed.wait(5)
        return told

    def create(self, spec: ContainerSpec, granted: object, part: object, cgroup: str) -> None:
        self.cgroup = cgroup
        if self.breaks:
            raise KeyError("what nobody expected")
        if self.refusal:
            raise self.refusal

    def remove(self, identity: str, grace_s: int) -> None:
        self.stopped.wait(5)

    def stop(self, identity: str, grace_s: int) -> None:
        self.graces.append(grace_s)

    def start(self, identity: str) -> ContainerState:
        self.started.wait(5)
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
        ssl.create_default_context(), ("edge",), bind="127.0.0.1", port_range=(1, 1), strangers=Strangers(), most=9
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


async def test_a_node_that_cannot_keep_sessions_apart_starts_nothing() -> None:
    engine, egress_policy = FakeEngine(), EgressPolicy(lambda: "docker0", [], list)
    supervisor = supervise(engine, egress_policy=egress_policy)
    with pytest.raises(ConflictError, match="not in place yet"):
        await supervisor.launch(SPEC)
    assert not supervisor.states(), "the same launch may come again"
    state = await Lifecycle(
        cast("DockerEngine", engine),
        ShareManager(Gpus(), [], {}, [], Path("/nowhere")),
        gang_networks(),
        egress_policy,
        Leases(Path("/nowhere")),
    ).start("c1", None)
    assert state.status is ContainerStatus.FAILED
    assert "not in place yet" in state.error


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in the supervisor's threads
            await asyncio.sleep(0.005)


async def test_an_end_that_overtakes_the_answer_to_the_start_is_not_lost() -> None:
    engine = FakeEngine()
    supervisor = supervise(engine)
    watching = asyncio.create_task(supervisor.watch())
    launching = asyncio.create_task(supervisor.launch(SPEC))
    await until(lambda: bool(supervisor.states()))
    engine.stream.items.put(event("start"))
    engine.stream.items.put(event("die"))
    await until(engine.stream.items.empty)
    await asyncio.sleep(0.05)
    engine.started.set()
    assert (await launching).status is ContainerStatus.EXITED
    engine.stream.close()
    watching.cancel()


async def test_an_end_is_not_held_up_by_the_log_of_another_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_heads, "FINISH_S", 60.0)
    engine = FakeEngine()
    supervisor = supervise(engine)
    engine.found = [found("c1"), found("c2")]
    await supervisor.rebuild()
    supervisor._known["c1"].collective = True
    watching = asyncio.create_task(supervisor.watch())
    try:
        for identity in ("c1", "c2"):
            engine.stream.items.put(event("die", identity))
        await until(lambda: supervisor.states()[1].status is ContainerStatus.EXITED)
        assert supervisor.states()[0].status is ContainerStatus.RUNNING, "its end is told with what its log says"
        engine.log.items.put(f"h:1:2 [0] {LINE}\n".encode())
        engine.log.items.put(None)
        await until(lambda: supervisor.states()[0].status is ContainerStatus.EXITED)
        assert supervisor.states()[0].nccl == NcclEvidence(p2p=True, p2p_line=LINE)
    finally:
        engine.stream.close()
        watching.cancel()
        await supervisor.close()


async def test_what_finds_no_rdma_any_more_is_lost() -> None:
    engine = FakeEngine()
    engine.refusal = MissingRdmaError("this node has no RDMA: no cable", where="rdma", hint="look at the cable")
    state = await supervise(engine).launch(SPEC)
    assert (state.status, state.lost) == (ContainerStatus.FAILED, True)


async def test_an_end_whose_event_is_lost_is_found_in_the_list() -> None:
    engine = FakeEngine()
    supervisor = supervise(engine)
    engine.found = [found("c1"), found("c2")]
    await supervisor.rebuild()
    engine.found = [ended("c1")]
    await supervisor.rebuild()
    assert [(state.id, state.status) for state in supervisor.states()] == [("c1", ContainerStatus.EXITED)]


async def test_an_end_that_is_found_in_the_list_of_an_engine_that_ends_is_its_doing() -> None:
    engine = FakeEngine()
    supervisor = supervise(engine)
    engine.found = [found("c1"), found("c2"), found("c3")]
    await supervisor.rebuild()
    engine.found = [ended("c1", 143), found("c2"), found("c3")]
    await supervisor.rebuild()
    engine.ends = True
    engine.found = [ended("c1", 143), ended("c2", 143), ended("c3", 0)]
    await supervisor.rebuild()
    assert [(state.exit_code, state.lost, state.error) for state in supervisor.states()] == [
        (143, False, ""),
        (None, True, ENGINE_RESTARTED),
        (0, False, ""),
    ]


async def test_a_list_that_is_older_than_a_removal_brings_nothing_back() -> None:
    engine = FakeEngine()
    supervisor = supervise(engine)
    engine.found = [found("c1")]
    await supervisor.rebuild()
    engine.stopped.set()
    engine.lists.clear()
    engine.listed.clear()
    listing = asyncio.create_task(supervisor.rebuild())
    await until(engine.lists.is_set)
    await supervisor.remove("c1", 0)
    engine.listed.set()
    await listing
    assert not supervisor.states()


async def test_a_list_that_is_older_than_a_start_changes_nothing_of_it() -> None:
    engine = FakeEngine()
    supervisor = supervise(engine)
    created = {"Status": "created", "Error": "", "ExitCode": 0, "StartedAt": NEVER, "FinishedAt": NEVER}
    engine.found = [found("c1") | {"State": created}]
    engine.started.set()
    engine.lists.clear()
    engine.listed.clear()
    listing = asyncio.create_task(supervisor.rebuild())
    await until(engine.lists.is_set)
    assert (await supervisor.launch(SPEC)).status is ContainerStatus.RUNNING
    supervisor.changed.clear()
    engine.listed.set()
    await listing
    assert [state.status for state in supervisor.states()] == [ContainerStatus.RUNNING]


async def test_watching_goes_on_whatever_docker_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.agent.docker.supervisor._RECONNECT_S", 0.0)
    engine = FakeEngine()
    watching = asyncio.create_task(supervise(engine).watch())
    engine.stream.items.put({"Action": "start", "Actor": {"Attributes": {}}})
    await until(lambda: engine.streams > 1 or watching.done())
    assert not watching.done()
    engine.stream.close()
    watching.cancel()


@pytest.mark.parametrize("odd", [{"network": "x"}, {"enforcement": "x"}, {"gpus": "x"}, {"ports": "[0.5]"}])
async def test_a_container_that_nobody_can_read_keeps_no_agent_from_coming_up(odd: dict[str, str]) -> None:
    engine = FakeEngine()
    engine.found = [found("c1"), found("c2", **odd), found("c3")]
    supervisor = supervise(engine)
    await supervisor.rebuild()
    assert [(state.id, state.status, bool(state.warning)) for state in supervisor.states()] == [
        ("c1", ContainerStatus.RUNNING, False),
        ("c2", ContainerStatus.RUNNING, True),
        ("c3", ContainerStatus.RUNNING, False),
    ]
    assert supervisor.states()[1].session_id == "s1"


async def test_a_container_that_cannot_be_taken_up_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    engine.found = [found("c1"), found("c2") | {"State": {}}, found("c3")]
    supervisor = supervise(engine)
    await supervisor.rebuild()
    assert [state.id for state in supervisor.states()] == ["c1", "c3"]


async def test_a_network_that_only_an_image_names_is_not_touched() -> None:
    """A valid label led another tenant's VXLAN to an address of the image's choice."""
    hosts = {"t-0": IPv4Address("100.96.0.34")}
    theirs = GangNetwork(number=7, subnet=SUBNET, address=hosts["t-0"], name="t-0", hosts=hosts, peers=["192.0.2.2"])
    forged = theirs.model_copy(update={"peers": ["192.0.2.66"]})
    node, engine = NodeNetworks(), FakeEngine()
    engine.found = [found("c1", network=theirs.model_dump_json()), found("c2", network=forged.model_dump_json())]
    engine.found[0]["NetworkSettings"]["Networks"]["penstock-gang-7"] = {"IPAddress": "100.96.0.34"}
    await supervise(engine, node).rebuild()
    assert node.sends_to == {"psx-7": ["192.0.2.2"]}


async def test_followers_do_not_keep_others_from_reading_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.agent.docker.supervisor.MAX_FOLLOWERS", 1)
    supervisor = supervise(FakeEngine())
    followed = await supervisor.logs("c1", follow=True, tail=None)
    following = asyncio.ensure_future(anext(followed))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(2):
        assert [part async for part in await supervisor.logs("c1", follow=False, tail=None)] == [b"all of it\n"]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_containers_that_take_long_to_stop_hold_up_nobody_else() -> None:
    """Nor do those that take long to start."""
    engine = FakeEngine()
    supervisor = supervise(engine)
    specs = [SPEC.model_copy(update={"id": f"s{number}"}) for number in range(50)]
    starting = [asyncio.create_task(supervisor.launch(spec)) for spec in specs]
    stopping = [asyncio.create_task(supervisor.remove(f"c{number}", 600)) for number in range(50)]
    await until(lambda: len(supervisor.states()) == len(specs))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(2):
        logs = await supervisor.logs("c99", follow=False, tail=None)
        assert [part async for part in logs] == [b"all of it\n"]
    assert not any(task.done() for task in (*starting, *stopping))
    engine.started.set()
    async with asyncio.timeout(2):
        await asyncio.gather(*starting)
    assert not any(task.done() for task in stopping)
    engine.stopped.set()
    await asyncio.gather(*stopping)


async def test_a_container_that_the_agent_itself_fails_with_has_failed() -> None:
    """Else it would look as if it were on its way, for ever."""
    engine = FakeEngine()
    engine.breaks = True
    state = await supervise(engine).launch(SPEC)
    assert state.status is ContainerStatus.FAILED
    assert "the agent failed" in state.error


async def test_storage_that_does_not_answer_holds_up_only_those_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    looks = 0

    def resolve(path: Path) -> Path:
        nonlocal looks
        looks += 1
        answers.wait(2)
        return path

    monkeypatch.setattr(Path, "resolve", resolve)
    engine = FakeEngine()
    engine.started.set()
    supervisor = supervise(engine)
    mount = Mount(source="/srv/team-a/data", target="/data")
    hung = [
        asyncio.create_task(supervisor.launch(SPEC.model_copy(update={"id": f"h{number}", "mounts": [mount]})))
        for number in range(50)
    ]
    await until(lambda: looks > 0)
    async with asyncio.timeout(1):
        assert (await supervisor.launch(SPEC)).status is ContainerStatus.RUNNING
    assert not any(task.done() for task in hung)
    answers.set()
    assert {state.status for state in await asyncio.gather(*hung)} == {ContainerStatus.RUNNING}


LEASE = f"penstock:{UUID(int=7)}:0"


class HeldLeases(Leases):
    """Leases that a test holds."""

    def hold(self, lease: str) -> None:
        self._held[lease].append("/slurm/job_7/step_batch")
        self._tell()

    def let_go(self, lease: str) -> None:
        del self._held[lease]


async def test_a_container_with_a_lease_is_made_below_its_step_and_ends_with_it() -> None:
    engine, leases = FakeEngine(), HeldLeases(Path("/nowhere"))
    supervisor = supervise(engine, leases=leases)
    launching = asyncio.create_task(supervisor.launch(SPEC.model_copy(update={"lease": LEASE})))
    await asyncio.sleep(0.05)
    assert not supervisor.states(), "its step has not begun"
    leases.hold(LEASE)
    engine.started.set()
    assert (await launching).status is ContainerStatus.RUNNING
    assert engine.cgroup == "/slurm/job_7/step_batch"
    assert supervisor.leases() == {LEASE}
    leases.let_go(LEASE)
    engine.found = [ended("c1", 143)]
    await supervisor.withdraw(LEASE)
    assert engine.graces == [GRACE_S]
    await supervisor._refresh("c1")
    [state] = supervisor.states()
    assert (state.status, state.error, state.lost) == (ContainerStatus.FAILED, LEASE_ENDED, True)
    assert not supervisor.leases()


async def test_a_container_whose_lease_ends_while_it_is_made_is_lost() -> None:
    engine, leases = FakeEngine(), HeldLeases(Path("/nowhere"))
    leases.hold(LEASE)
    supervisor = supervise(engine, leases=leases)
    launching = asyncio.create_task(supervisor.launch(SPEC.model_copy(update={"lease": LEASE})))
    await until(lambda: bool(engine.cgroup))
    leases.let_go(LEASE)
    withdrawing = asyncio.create_task(supervisor.withdraw(LEASE))
    await asyncio.sleep(0.05)
    assert not engine.graces, "nobody knows whether it runs"
    engine.started.set()
    await launching
    await withdrawing
    assert engine.graces == [GRACE_S]


async def test_a_container_that_was_made_is_started_when_its_lease_is_held_again() -> None:
    engine, leases = FakeEngine(), HeldLeases(Path("/nowhere"))
    supervisor = supervise(engine, leases=leases)
    made = found("c1", lease=LEASE)
    engine.found = [made | {"State": {**made["State"], "Status": "created", "StartedAt": NEVER}}]
    engine.started.set()
    await supervisor.rebuild()
    assert [state.status for state in supervisor.states()] == [ContainerStatus.CREATING]
    leases.hold(LEASE)
    await supervisor.rebuild()
    assert [state.status for state in supervisor.states()] == [ContainerStatus.RUNNING]
