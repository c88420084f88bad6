"""The supervisor with a Docker Engine that answers as a test says."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import IPv4Address
from pathlib import Path
from typing import cast

import pytest

from appliance.agent.docker import log_heads
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.inspections import NEVER
from appliance.agent.docker.leases import Leases
from appliance.agent.docker.lifecycle import Lifecycle
from appliance.agent.docker.rdma import MissingRdmaError
from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu.devices import Gpus
from common.errors import ConflictError
from common.nccl import NcclEvidence
from common.protocol import ENGINE_RESTARTED, ContainerStatus, GangNetwork, Mount
from tests.fakes.node_networks import NodeNetworks, gang_networks
from tests.unit.appliance.agent.docker.supervised import (
    LINE,
    SPEC,
    SUBNET,
    FakeEngine,
    ended,
    event,
    found,
    supervise,
    until,
)

pytestmark = pytest.mark.anyio


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
    async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
        logs = await supervisor.logs("c99", follow=False, tail=None)
        assert [part async for part in logs] == [b"all of it\n"]
    assert not any(task.done() for task in (*starting, *stopping))
    engine.started.set()
    async with asyncio.timeout(60):
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
        answers.wait(120)
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
    async with asyncio.timeout(60):
        assert (await supervisor.launch(SPEC)).status is ContainerStatus.RUNNING
    assert not any(task.done() for task in hung)
    answers.set()
    assert {state.status for state in await asyncio.gather(*hung)} == {ContainerStatus.RUNNING}
