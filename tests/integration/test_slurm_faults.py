"""Sessions on places of a real Slurm of which a daemon is killed, silent, or has another key than the others."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from api.control.reconcilers import failures
from api.engine.slurm.launcher import SlurmLauncher
from appliance.agent.docker.leases import Leases
from common.lease_protocol import LEASE_ENDED
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import run
from tests.bench.leases import TrueClock
from tests.integration.slurm import HEARD_S, Slurm, running_slurm

pytestmark = pytest.mark.anyio

NAMES = ("worker1", "worker2", "worker3", "worker4")
SILENT_S = 8
CONF = (f"SlurmdTimeout={SILENT_S}", "DebugFlags=NO_CONF_HASH")
LOST = "Slurm took its place back: NODE_FAIL (NodeDown)"
ANSWER = "4", "sh", "-c", "sinfo --noheader --Node --responding --states=idle,mixed,alloc --format=%N | wc -l"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm(NAMES, more=CONF) as running:
        yield running


@pytest.fixture
async def cluster(slurm: Slurm, database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    slurm.clear()
    monkeypatch.setattr(failures, "RETRY_S", (0.0,))
    settings: dict[str, Any] = {"engine": "slurm", "slurm_conf": slurm.conf, "slurm_holder": slurm.holder}
    async with running_cluster(database_url, TrueClock(), **settings) as running:
        for name in NAMES:
            await running.add_node(name)
        await running.add_image()
        await running.add_project("team-a", 16000)
        reports = asyncio.create_task(report(running))
        yield running
        reports.cancel()
        with suppress(asyncio.CancelledError):
            await reports
    slurm.clear()


async def report(cluster: Cluster) -> None:
    """Let the agents report all the time: some of what is looked at takes long."""
    while True:
        for name in NAMES:
            await cluster.heartbeat(name)
        await asyncio.sleep(1)


@pytest.fixture
async def may_end() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@pytest.fixture
async def agent(cluster: Cluster, slurm: Slurm, may_end: asyncio.Event) -> AsyncIterator[Leases]:
    """What agents know of leases; a container whose lease nobody holds any more ends when `may_end`, as theirs do."""

    async def withdraw(lease: str) -> None:
        await may_end.wait()
        for key, state in cluster.engine.containers.items():
            if cluster.engine.specs[key[1]].lease == lease:
                ended = {"status": ContainerStatus.FAILED, "error": LEASE_ENDED, "lost": True}
                cluster.engine.containers[key] = state.model_copy(update=ended)

    leases = Leases(slurm.agents_socket, below_steps=False)
    task = asyncio.create_task(leases.run(list, withdraw))
    yield leases
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def launcher_of(cluster: Cluster) -> SlurmLauncher:
    launcher = cluster.manager._operator._launcher
    assert isinstance(launcher, SlurmLauncher)
    return launcher


async def look(cluster: Cluster) -> None:
    """Let the leader look, and do what comes of that."""
    await cluster.manager.observe()
    await cluster.manager.reconcile()
    while operations := list(cluster.manager.operations.values()):
        await asyncio.gather(*operations)


async def until(cluster: Cluster, reached: Callable[[], Awaitable[bool]]) -> float:
    """Look again and again until something is so, and return how many seconds that took."""
    began = time.monotonic()
    while not await reached():
        assert time.monotonic() - began < HEARD_S, await cluster.states()
        await look(cluster)
        await asyncio.sleep(0.2)
    return time.monotonic() - began


def lease(session: dict[str, Any]) -> str:
    return f"penstock:{session['id']}:{session['attempt']}"


def held(slurm: Slurm) -> list[str]:
    """Return the leases whose jobs run."""
    return sorted(comment.rpartition(":")[0] for state, comment in slurm.jobs() if state == "RUNNING")


def holders(slurm: Slurm) -> list[str]:
    """Return the leases that steps hold on the nodes, whatever the controller says."""
    found = slurm.ask("sh", "-c", f"pgrep --full --list-full {slurm.agents_socket} || true").splitlines()
    return sorted(word for line in found if "lease_holder" in line for word in line.split() if word.count(":") == 2)


async def withheld(cluster: Cluster) -> dict[str, str]:
    listed = await ok(cluster.admin.get(f"{V1}/nodes"))
    return {each["name"]: each["withheld"] for each in listed if each["withheld"]}


async def checks(cluster: Cluster) -> dict[tuple[str, str], tuple[str, str, str]]:
    found = await launcher_of(cluster).checks()
    return {(check.id, check.subject): (str(check.state), check.evidence, check.hint) for check in found}


async def agree(cluster: Cluster, slurm: Slurm) -> bool:
    """Return whether each session that runs has one job, held by steps of its own, and nobody else has any."""
    rows = await ok(cluster.admin.get(f"{V1}/sessions", params={"project": "team-a"}))
    wanted = sorted(lease(row) for row in rows if row["state"] == "RUNNING")
    containers = sorted(cluster.engine.specs[id_].lease for _, id_ in cluster.engine.containers)
    return wanted == held(slurm) == holders(slurm) == containers


def number_of(slurm: Slurm, session: dict[str, Any]) -> int:
    listed = slurm.ask("squeue", "--noheader", "--states=RUNNING", "--format=%A %k").splitlines()
    (number,) = (line.partition(" ")[0] for line in listed if lease(session) in line)
    return int(number)


async def whole(cluster: Cluster, **kinds: str) -> dict[str, dict[str, Any]]:
    """Run sessions that take a node each, by their nodes."""
    found = {}
    for name, kind in kinds.items():
        session = await run(cluster, name, kind=kind, gpu_milli=4000)
        found[session["node"]] = session
    return found


async def test_nodes_that_slurm_loses_end_their_sessions_with_the_reason_and_take_others_when_they_are_back(
    cluster: Cluster, slurm: Slurm, agent: Leases
) -> None:
    """One is killed, one says nothing, and the munge of a third has another key; the fourth notices nothing."""
    on = await whole(cluster, killed="training", silent="training", barred="interactive", spared="interactive")
    where = {session["name"]: node for node, session in on.items()}
    assert await agree(cluster, slurm)
    slurm.kill(where["killed"])
    stopped = slurm.processes[where["silent"]]
    slurm.stop(where["barred"])
    slurm.start_node(where["barred"], slurm.conf_with_another_key())
    try:
        stopped.send_signal(signal.SIGSTOP)

        async def are_lost() -> bool:
            now = await cluster.states()
            return (now["killed"], now["silent"], now["barred"]) == ("PENDING", "PENDING", "FAILED")

        took_s = await until(cluster, are_lost)
        print(f"lost after {took_s:.1f} s")
        assert (await cluster.session("barred"))["reason"] == LOST
        assert (await cluster.session("barred"))["cause"] == "withdrawn"

        async def are_withheld() -> bool:
            silent = {where[name] for name in ("killed", "silent", "barred")}
            now = await withheld(cluster)
            return now.keys() == silent and all("(Not responding)" in why for why in now.values())

        await until(cluster, are_withheld)
        seen = await checks(cluster)
        assert {subject: state for (check, subject), (state, *_) in seen.items() if check == "slurmd"} == {
            node: "ok" if name == "spared" else "fail" for name, node in where.items()
        }
        hint = seen["slurmd", where["barred"]][2]
        assert f"`munge --no-input | ssh {where['barred']} unmunge` on the master tells" in hint

        async def waits_for_a_node() -> bool:
            return "(Not responding)" in (await cluster.session("killed"))["reason"]

        await until(cluster, waits_for_a_node)
    finally:
        stopped.send_signal(signal.SIGCONT)
        slurm.start_node(where["killed"])
        slurm.stop(where["barred"])
        slurm.start_node(where["barred"])

    async def is_as_before() -> bool:
        now = await cluster.states()
        both = (now["killed"], now["silent"]) == ("RUNNING", "RUNNING")
        return both and not await withheld(cluster) and await agree(cluster, slurm)

    print(f"back after {await until(cluster, is_as_before):.1f} s")
    assert (await cluster.session("spared"))["attempt"] == 0
    for name in ("killed", "silent"):
        assert (await cluster.session(name))["attempt"] >= 1


async def test_a_daemon_that_is_killed_and_starts_again_in_time_costs_no_session(
    cluster: Cluster, slurm: Slurm, agent: Leases
) -> None:
    (node,) = await whole(cluster, demo="interactive")
    slurm.kill(node)
    slurm.start_node(node)
    await look(cluster)
    await whole(cluster, late="training", later="training", last="training")

    async def is_well() -> bool:
        return not await withheld(cluster) and await agree(cluster, slurm)

    await until(cluster, is_well)
    assert {name: state for name, state in (await cluster.states()).items() if state != "RUNNING"} == {}
    assert (await cluster.session("demo"))["attempt"] == 0


async def test_without_munge_sessions_go_on_and_what_waits_says_that_it_is_munge(
    cluster: Cluster, slurm: Slurm, agent: Leases
) -> None:
    await run(cluster, kind="interactive")
    slurm.kill("munged")
    try:
        await cluster.submit("late")
        await look(cluster)
        late = await cluster.session("late")
        assert late["state"] == "PREPARING"
        assert "Slurm's controller does not answer: " in late["reason"]
        assert "munge: Error: Failed to " in late["reason"]
        assert "munge.sock" in late["reason"]
        assert (await cluster.session("demo"))["state"] == "RUNNING"
        (check,) = (await checks(cluster)).items()
        assert (check[0], check[1][0]) == (("munge", ""), "fail")
    finally:
        slurm.start_munge()

    async def is_well() -> bool:
        now = await cluster.states()
        return now == {"demo": "RUNNING", "late": "RUNNING"} and await agree(cluster, slurm)

    print(f"back after {await until(cluster, is_well):.1f} s")
    assert (await cluster.session("demo"))["attempt"] == 0


async def test_a_controller_that_is_killed_as_it_lends_gives_no_node_a_job_with_the_number_of_one_there(
    cluster: Cluster, slurm: Slurm, agent: Leases, may_end: asyncio.Event
) -> None:
    """It has forgotten the job of a session, which is asked for again while the container still ends."""
    await run(cluster, "early")
    # what it has written before the session is submitted
    state = slurm.folder / "state" / "job_state"
    slurm.stop("slurmctld")
    written = state.read_bytes()
    slurm.start_controller()
    slurm.wait(*ANSWER)
    session = await run(cluster, gpu_milli=2500)
    await agent.wait(lease(session))
    may_end.clear()
    forgotten = number_of(slurm, session)
    slurm.kill("slurmctld")
    for path in (state, state.with_name("job_state.old")):
        path.write_bytes(written)
    slurm.start_controller()
    slurm.wait("UP", "scontrol", "ping")

    async def is_asked_for_again() -> bool:
        assert not {node: why for node, why in (await withheld(cluster)).items() if "drain" in why}
        return lease(session) in held(slurm) and len(slurm.jobs()) == 2

    print(f"lent again after {await until(cluster, is_asked_for_again):.1f} s")
    assert number_of(slurm, session) > forgotten
    may_end.set()

    async def is_well() -> bool:
        assert not {node: why for node, why in (await withheld(cluster)).items() if "drain" in why}
        return set((await cluster.states()).values()) == {"RUNNING"} and await agree(cluster, slurm)

    print(f"back after {await until(cluster, is_well):.1f} s")
