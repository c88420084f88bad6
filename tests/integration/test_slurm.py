"""Sessions on places that a real Slurm lends; the containers are those of a fake engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, update

from api.clock import now
from api.control.reconcilers import failures
from api.engine.launcher import LeasedNode, NotLentError
from api.engine.slurm import launcher as launching
from api.engine.slurm.launcher import Owner, SlurmLauncher
from api.resources.installation import service as installation
from api.tables.sessions import Session
from appliance.agent import lease_holder
from common.errors import UnavailableError
from common.lease_protocol import Lease
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import delete, run
from tests.integration.slurm import Slurm, running_slurm

pytestmark = pytest.mark.anyio

OTHER = uuid4()
PLACE = LeasedNode("worker1", 500, 1, 64)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # no job is killed before its holder has ended by itself
    with running_slurm(("worker1", "worker2"), kill_wait_s=120) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_is_left(slurm: Slurm) -> None:
    slurm.clear()


async def other() -> UUID:
    """Tell an installation that is not the one under test."""
    return OTHER


@pytest.fixture
def launcher(slurm: Slurm) -> SlurmLauncher:
    return launcher_of(slurm, other)


def launcher_of(slurm: Slurm, owner: Owner) -> SlurmLauncher:
    return SlurmLauncher("penstock", owner, slurm.conf, lend_s=20, holder=slurm.holder)


@pytest.fixture
async def cluster(slurm: Slurm, database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(failures, "RETRY_S", (0.0,))
    settings: dict[str, Any] = {"engine": "slurm", "slurm_conf": slurm.conf, "slurm_holder": slurm.holder}
    async with running_cluster(database_url, **settings) as running:
        await running.add_node("worker1")
        await running.add_node("worker2")
        await running.add_image()
        await running.add_project("team-a", 8000)
        yield running
    slurm.ask("scancel", "--user=root")


def held(slurm: Slurm, owner: UUID | None = None) -> list[str]:
    """Return the leases whose jobs run, of an installation or of all but the other one."""
    found = [comment.rpartition(":") for state, comment in slurm.jobs() if state == "RUNNING"]
    return [lease for lease, _, whose in found if whose == str(owner) or (owner is None and whose != str(OTHER))]


def own(cluster: Cluster) -> Owner:
    return partial(installation.own_id, cluster.database)


async def watch(cluster: Cluster) -> None:
    """Let the leader look at the leases."""
    cluster.clock.passed += 2
    await cluster.settle()


async def test_a_session_runs_on_a_job_of_its_own_and_gives_it_back(cluster: Cluster, slurm: Slurm) -> None:
    session = await run(cluster)
    assert held(slurm) == [f"penstock:{session['id']}:0"]
    assert slurm.ask("squeue", "--noheader", "--format=%N %b").split() == [session["node"], "gres:fgpu:500"]
    await delete(cluster)
    await cluster.settle()
    assert held(slurm) == []


def environment_of(program: str, slurm: Slurm) -> list[str]:
    words = ["pgrep", "--full", program]
    slurm.wait("\n", *words)
    return Path("/proc", slurm.ask(*words).strip(), "environ").read_text().split("\0")


async def test_a_job_begins_without_a_login_of_its_account(cluster: Cluster, slurm: Slurm) -> None:
    session = await run(cluster)
    environment = environment_of(f"lease_holder.py penstock:{session['id']}", slurm)
    assert [line for line in environment if line.startswith(("HOME=", "LOGNAME=", "MAIL=", "SHELL="))] == []
    assert "PATH=/usr/bin:/bin" in environment


async def test_containers_of_a_session_take_different_amounts_of_their_nodes(cluster: Cluster, slurm: Slurm) -> None:
    await run(cluster, "wide", gpu_milli=2000, replicas=3)
    assert sorted(slurm.ask("squeue", "--noheader", "--format=%N %b").splitlines()) == [
        "worker1 gres:fgpu:4000",
        "worker2 gres:fgpu:2000",
    ]
    assert len(set(held(slurm))) == 1
    # a step of each, and that of the script
    steps = "squeue --steps --noheader --format=%N | sort | uniq -c | tr -s ' ' | tr '\\n' ,"
    slurm.wait(" 1 worker1, 2 worker2,", "sh", "-c", steps)


async def test_a_job_that_somebody_cancels_ends_its_session_with_the_reason(cluster: Cluster, slurm: Slurm) -> None:
    await run(cluster, kind="interactive")
    slurm.clear()
    await watch(cluster)
    session = await cluster.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "Slurm took its place back: CANCELLED")
    assert session["cause"] == "withdrawn"
    assert not cluster.engine.containers


@asynccontextmanager
async def a_job_that_still_ends(cluster: Cluster, slurm: Slurm) -> AsyncIterator[None]:
    """Cancel the job of a session whose agent ends its containers when all else is done."""
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(slurm.agents_socket))
        agent.listen()
        agent.settimeout(60)
        await run(cluster, kind="interactive")
        with (await asyncio.to_thread(agent.accept))[0] as connection:
            slurm.ask("scancel", "--user=root")
            slurm.wait("COMPLETING", "squeue", "--noheader", "--format=%T")
            try:
                yield
            finally:
                connection.sendall(lease_holder.ENDED)
                slurm.clear()
    slurm.agents_socket.unlink()


async def test_a_job_that_still_ends_keeps_its_session_until_slurm_tells_why(cluster: Cluster, slurm: Slurm) -> None:
    async with a_job_that_still_ends(cluster, slurm):
        await watch(cluster)
        assert (await cluster.session("demo"))["state"] == "RUNNING"
    await watch(cluster)
    assert (await cluster.session("demo"))["reason"] == "Slurm took its place back: CANCELLED"


async def test_a_job_that_does_not_come_to_its_end_ends_its_session(
    cluster: Cluster, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "ENDING_S", 0.0)
    async with a_job_that_still_ends(cluster, slurm):
        await watch(cluster)
        session = await cluster.session("demo")
        assert (session["state"], session["reason"]) == ("FAILED", "Slurm took its place back: COMPLETING")


async def test_a_training_whose_job_is_cancelled_starts_again_with_another(cluster: Cluster, slurm: Slurm) -> None:
    session = await run(cluster, "learns")
    slurm.clear()
    await watch(cluster)
    assert (await cluster.session("learns"))["state"] == "RUNNING"
    assert held(slurm) == [f"penstock:{session['id']}:1"]


async def test_a_session_waits_while_others_have_its_place_in_slurm(
    cluster: Cluster, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = cluster.manager._operator._launcher
    monkeypatch.setattr(launcher, "_lend_s", 0.5)
    slurm.ask("sbatch", "--nodes=2", "--gres=fgpu:4000", "--output=/dev/null", "--wrap=sleep 600")
    slurm.wait("RUNNING", "squeue", "--noheader", "--format=%T")
    await cluster.submit("demo")
    await cluster.manager.reconcile()
    while operations := list(cluster.manager.operations.values()):
        await asyncio.gather(*operations)
    session = await cluster.session("demo")
    assert session["reason"].startswith("Slurm does not lend its place: ")
    assert [state for state, comment in slurm.jobs() if comment.startswith("penstock:")] == []
    slurm.ask("scancel", "--user=root")
    slurm.wait("idle", "sinfo", "--noheader", "--format=%T")
    monkeypatch.setattr(launcher, "_lend_s", 20)
    await try_again(cluster)
    assert (await cluster.session("demo"))["state"] == "RUNNING"


async def try_again(cluster: Cluster) -> None:
    """Let the pauses of sessions that were refused be over."""
    async with cluster.database.transaction() as db:
        await db.execute(update(Session).values(tries_at=now()))
    async with asyncio.timeout(60):
        await cluster.settle()


async def test_a_session_that_slurm_refuses_waits_longer_each_time_and_says_why_and_until_when(
    cluster: Cluster, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = cluster.manager._operator._launcher
    assert isinstance(launcher, SlurmLauncher)
    asked: list[Lease] = []
    submit = launcher._submit

    async def counted(lease: Lease, places: Sequence[LeasedNode]) -> None:
        asked.append(lease)
        await submit(lease, places)

    monkeypatch.setattr(launcher, "_submit", counted)
    slurm.ask("scontrol", "update", "PartitionName=penstock", "State=DRAIN")
    try:
        await cluster.submit("demo")
        for number, pause_s in enumerate((5, 10, 20), start=1):
            begun = now()
            await try_again(cluster)
            session = await cluster.session("demo")
            assert session["state"] == "PENDING"
            assert "Required partition not available" in session["reason"]
            assert "; it is tried again at 20" in session["reason"]
            async with cluster.database.reading() as db:
                row = (await db.scalars(select(Session))).one()
            assert row.tries_at is not None
            assert timedelta(seconds=pause_s) <= row.tries_at - begun < timedelta(seconds=pause_s + 5)
            assert (len(asked), row.refusals) == (number, number)
            await cluster.settle()
            assert len(asked) == number, "nothing is asked during the pause"
    finally:
        slurm.ask("scontrol", "update", "PartitionName=penstock", "State=UP")
    await try_again(cluster)
    assert (await cluster.session("demo"))["state"] == "RUNNING"
    async with cluster.database.reading() as db:
        row = (await db.scalars(select(Session))).one()
    assert (row.refusals, row.tries_at) == (0, None)


async def test_a_session_that_is_refused_keeps_no_other_from_its_place(cluster: Cluster, slurm: Slurm) -> None:
    slurm.ask("scontrol", "update", "PartitionName=penstock", "State=DRAIN")
    try:
        await cluster.submit("first", gpu_milli=4000)
        async with asyncio.timeout(60):
            await cluster.settle()
    finally:
        slurm.ask("scontrol", "update", "PartitionName=penstock", "State=UP")
    await cluster.submit("second", gpu_milli=4000)
    await cluster.submit("third", gpu_milli=4000)
    await cluster.settle()
    assert await cluster.states() == {"first": "PENDING", "second": "RUNNING", "third": "RUNNING"}


@pytest.mark.parametrize(("state", "told"), [("DOWN", "down"), ("DRAIN", "drain"), ("INACTIVE", "inactive")])
async def test_nothing_is_asked_for_in_a_partition_that_takes_no_jobs(
    cluster: Cluster, slurm: Slurm, state: str, told: str
) -> None:
    slurm.ask("scontrol", "update", "PartitionName=penstock", f"State={state}")
    try:
        await watch(cluster)
        await cluster.submit("demo")
        await cluster.settle()
        session = await cluster.session("demo")
        assert session["state"] == "PENDING"
        assert f"worker1 is unhealthy (Slurm: its partition is {told})" in session["reason"]
    finally:
        slurm.ask("scontrol", "update", "PartitionName=penstock", "State=UP")
    await watch(cluster)
    assert (await cluster.session("demo"))["state"] == "RUNNING"


async def test_jobs_of_another_installation_with_the_same_account_are_left_alone(
    cluster: Cluster, slurm: Slurm, launcher: SlurmLauncher
) -> None:
    """Their sessions are none of ours, and a copy of a database may name one of ours."""
    theirs = Lease(uuid4(), 0)
    await launcher.admit(theirs, [PLACE])
    session = await run(cluster)
    copied = Lease(UUID(session["id"]), 0)
    await launcher.admit(copied, [PLACE])
    await watch(cluster)
    assert sorted(held(slurm, OTHER)) == sorted(map(str, (theirs, copied)))
    assert (await launcher.watch()).lent == {theirs, copied}
    await delete(cluster)
    await cluster.settle()
    assert (held(slurm), len(held(slurm, OTHER))) == ([], 2)


async def test_an_installation_stays_the_same(cluster: Cluster) -> None:
    assert await own(cluster)() == await own(cluster)() != OTHER


async def test_a_job_that_belongs_to_no_session_is_cancelled(cluster: Cluster, slurm: Slurm) -> None:
    await launcher_of(slurm, own(cluster)).admit(Lease(uuid4(), 0), [PLACE])
    session = await run(cluster)
    await watch(cluster)
    assert held(slurm) == [f"penstock:{session['id']}:0"]


async def test_a_job_that_is_suspended_has_lost_its_place_and_is_cancelled(cluster: Cluster, slurm: Slurm) -> None:
    await launcher_of(slurm, own(cluster)).admit(Lease(uuid4(), 0), [PLACE])
    await run(cluster, kind="interactive")
    for number in slurm.ask("squeue", "--noheader", "--format=%i").split():
        slurm.ask("scontrol", "suspend", number)
    await watch(cluster)
    session = await cluster.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "Slurm took its place back: SUSPENDED")
    assert [state for state, _ in slurm.jobs() if state == "SUSPENDED"] == []
    # the next test needs the place
    slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")


async def test_of_two_jobs_of_a_lease_one_stays(cluster: Cluster, slurm: Slurm) -> None:
    session = await run(cluster)
    comment = f"--comment=penstock:{session['id']}:0:{await own(cluster)()}"
    slurm.ask("sbatch", comment, "--nodes=1", "--mem=64M", "--output=/dev/null", "--wrap=sleep 600")
    slurm.wait("2", "sh", "-c", "squeue --noheader --states=RUNNING | wc -l")
    await watch(cluster)
    slurm.wait("1", "sh", "-c", "squeue --noheader --states=RUNNING | wc -l")
    assert slurm.ask("squeue", "--noheader", "--states=RUNNING", "--format=%b").split() == ["gres:fgpu:500"]
    assert (await cluster.session("demo"))["state"] == "RUNNING"
    slurm.ask("scancel", "--user=root")
    slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")


async def test_a_node_that_slurm_does_not_know_takes_nothing_and_says_why(cluster: Cluster, slurm: Slurm) -> None:
    await cluster.add_node("worker3", gpus=6)
    await watch(cluster)
    await cluster.submit("demo", gpu_milli=6000)
    await cluster.settle()
    session = await cluster.session("demo")
    assert session["state"] == "PENDING"
    assert "worker3 is unhealthy (Slurm does not know it in partition penstock)" in session["reason"]


async def test_a_lease_is_asked_for_once(slurm: Slurm, launcher: SlurmLauncher) -> None:
    lease = Lease(uuid4(), 0)
    await launcher.admit(lease, [PLACE])
    await launcher_of(slurm, other).admit(lease, [PLACE])
    assert len(held(slurm, OTHER)) == 1
    await launcher.release([lease])
    # its job may still end, of which nobody would be told why
    with pytest.raises(NotLentError, match="Slurm took its place back: CANCELLED"):
        await launcher.admit(lease, [PLACE])


async def test_comments_of_others_are_no_leases(slurm: Slurm, launcher: SlurmLauncher) -> None:
    forged = f"x\n9|RUNNING|None|penstock:{uuid4()}:0:{OTHER}"
    slurm.ask("sbatch", "--uid=65534", f"--comment={forged}", "--output=/dev/null", "--wrap=sleep 600")
    try:
        slurm.wait("RUNNING", "squeue", "--noheader", "--format=%T")
        assert not (await launcher.watch()).lent
    finally:
        slurm.ask("scancel", "--user=nobody")


async def test_what_slurm_cannot_give_is_refused_in_its_own_words(launcher: SlurmLauncher) -> None:
    with pytest.raises(NotLentError, match=r"Slurm does not take its job: .*not available"):
        await launcher.admit(Lease(uuid4(), 0), [LeasedNode("worker1", 5000, 1, 64)])


async def test_sessions_go_on_without_the_controller_and_none_is_admitted(cluster: Cluster, slurm: Slurm) -> None:
    session = await run(cluster)
    slurm.stop("slurmctld")
    try:
        await cluster.submit("late")
        await cluster.manager.reconcile()
        await asyncio.gather(*cluster.manager.operations.values())
        late = await cluster.session("late")
        assert (late["state"], late["reason"].partition(":")[0]) == ("PREPARING", "Slurm's controller does not answer")
        assert (await cluster.session("demo"))["state"] == "RUNNING"
    finally:
        slurm.start_controller()
        slurm.wait("UP", "scontrol", "ping")
    slurm.wait("RUNNING", "squeue", "--noheader", "--format=%T")
    await watch(cluster)
    late = await cluster.session("late")
    assert late["state"] == "RUNNING"
    assert sorted(held(slurm)) == sorted([f"penstock:{session['id']}:0", f"penstock:{late['id']}:0"])


async def test_a_job_that_the_controller_has_forgotten_is_asked_for_again(cluster: Cluster, slurm: Slurm) -> None:
    session = await run(cluster)
    slurm.stop("slurmctld")
    for kept in ("job_state", "job_state.old"):
        (slurm.folder / "state" / kept).unlink(missing_ok=True)
    slurm.start_controller()
    slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")
    assert held(slurm) == []
    await watch(cluster)
    assert (await cluster.session("demo"))["state"] == "RUNNING"
    assert held(slurm) == [f"penstock:{session['id']}:0"]


async def test_nodes_that_slurm_has_drained_take_nothing_and_say_why(cluster: Cluster, slurm: Slurm) -> None:
    for name in ("worker1", "worker2"):
        slurm.ask("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=fans | loud")
    try:
        await watch(cluster)
        await cluster.submit("demo")
        await cluster.settle()
        session = await cluster.session("demo")
        assert session["state"] == "PENDING"
        assert "worker1 is unhealthy (Slurm: drained (fans | loud))" in session["reason"]
    finally:
        slurm.ask("scontrol", "update", "NodeName=worker[1-2]", "State=RESUME")
    # first they have to answer
    slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")
    await watch(cluster)
    assert (await cluster.session("demo"))["state"] == "RUNNING"


async def test_a_share_is_not_raised_above_what_is_lent(cluster: Cluster) -> None:
    await run(cluster)
    answer = await cluster.admin.patch(f"{V1}/sessions/demo", params={"project": "team-a"}, json={"gpu_milli": 750})
    assert answer.status_code == 409
    assert "Slurm lends" in answer.text
    await ok(cluster.admin.patch(f"{V1}/sessions/demo", params={"project": "team-a"}, json={"gpu_milli": 250}))


async def test_nobody_says_what_is_lent_where_there_is_no_controller(slurm: Slurm) -> None:
    lost = slurm.folder / "lost.conf"
    lost.write_text(slurm.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    with pytest.raises(UnavailableError, match="Slurm's controller does not answer"):
        await SlurmLauncher("penstock", other, lost).watch()


async def found(launcher: SlurmLauncher) -> dict[tuple[str, str], tuple[str, str]]:
    """Return how all checks are, by what they are about: their states and what was seen."""
    return {(check.id, check.subject): (str(check.state), check.evidence) for check in await launcher.checks()}


async def test_all_that_slurm_needs_is_looked_at(launcher: SlurmLauncher, slurm: Slurm) -> None:
    seen = await found(launcher)
    controller = next(subject for check, subject in seen if check == "slurmctld")
    assert seen == {
        ("munge", ""): ("ok", "it answers"),
        ("slurmctld", controller): ("ok", "it is UP"),
        ("slurmd", "worker1"): ("ok", "it does"),
        ("slurmd", "worker2"): ("ok", "it does"),
    }
    slurm.ask("scontrol", "update", "NodeName=worker2", "State=DRAIN", "Reason=fans")
    try:
        assert (await found(launcher))["slurmd", "worker2"] == ("fail", "Slurm: drained (fans)")
    finally:
        slurm.ask("scontrol", "update", "NodeName=worker2", "State=RESUME")
    slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")


async def test_a_controller_that_is_down_is_told_with_where_to_look(launcher: SlurmLauncher, slurm: Slurm) -> None:
    slurm.stop("slurmctld")
    try:
        munge, controller = await launcher.checks()
    finally:
        slurm.start_controller()
        slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")
    assert (munge.id, munge.state) == ("munge", "ok")
    assert (controller.id, controller.state, controller.evidence) == ("slurmctld", "fail", "it is DOWN")
    assert "systemctl status slurmctld" in controller.hint


async def test_a_munge_that_is_down_is_told_apart_from_the_controller(launcher: SlurmLauncher, slurm: Slurm) -> None:
    slurm.stop("munged")
    try:
        munge = (await launcher.checks())[0]
    finally:
        slurm.start_munge()
        slurm.wait("idle 2", "sinfo", "--noheader", "--format=%T %D")
    assert (munge.id, munge.state) == ("munge", "fail")
    assert "munge.sock" in munge.evidence
    assert "systemctl status munge" in munge.hint


async def test_the_leader_looks_at_slurm_for_the_doctor(cluster: Cluster) -> None:
    for _ in range(12):
        cluster.clock.passed += 1
        await cluster.settle()
    listed = await ok(cluster.admin.get(f"{V1}/health/checks?node="))
    told = {each["check"]: each["state"] for each in listed}
    assert {check: told.get(check) for check in ("munge", "slurmctld", "slurmd")} == {
        "munge": "ok",
        "slurmctld": "ok",
        "slurmd": "ok",
    }
