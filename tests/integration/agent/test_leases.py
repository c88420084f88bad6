"""A real agent, whose containers run while a step of a real Slurm holds their lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import docker
import pytest

from api.engine.launcher import LeasedNode
from api.engine.slurm.launcher import SlurmLauncher
from common.lease_protocol import LEASE_ENDED, Lease
from common.protocol import ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, put, states, wait_for
from tests.integration.agent.conftest import Agent
from tests.integration.slurm import Slurm, running_slurm

PLACES = [LeasedNode("worker1", 500, 1, 64)]
SLOW = ["sh", "-c", "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done"]
GOES_ON = (ContainerStatus.CREATING, ContainerStatus.RUNNING)

MakeSpec = Callable[..., ContainerSpec]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm(cgroups=True, kill_wait_s=20) as running:
        yield running


@pytest.fixture
def leased(node: Agent, slurm: Slurm) -> Iterator[Agent]:
    """An agent whose node is one of Slurm's."""
    node.environment["PENSTOCK_AGENT_LEASE_SOCKET"] = str(slurm.agents_socket)
    node.start()
    yield node
    slurm.clear()


async def owner() -> UUID:
    return UUID(int=1)


@pytest.fixture
def launcher(slurm: Slurm) -> SlurmLauncher:
    return SlurmLauncher("penstock", owner, slurm.conf, lend_s=20, holder=slurm.holder)


@pytest.fixture
def lease() -> Lease:
    return Lease(uuid4(), 0)


def test_a_container_runs_in_the_step_of_its_job_and_slurm_waits_for_its_end(
    leased: Agent, slurm: Slurm, launcher: SlurmLauncher, lease: Lease, spec: MakeSpec, engine: docker.DockerClient
) -> None:
    asyncio.run(launcher.admit(lease, PLACES))
    with leased.client() as client:
        state = launch(client, spec(command=SLOW, args=[], memory_mib=64, lease=str(lease)))
        assert state.status is ContainerStatus.RUNNING
        inside = engine.containers.get(f"penstock-{state.id}").attrs["HostConfig"]["CgroupParent"]
        job = slurm.ask("squeue", "--noheader", "--format=%A").strip()
        assert f"/uid_0/job_{job}/step_batch" in inside
        slurm.ask("scancel", "--user=root")
        slurm.wait("COMPLETING", "squeue", "--noheader", "--format=%T")
        listed = ["COMPLETING"]
        # whoever goes on now has gone on when Slurm was asked
        while (state := states(client)[state.id]).status in GOES_ON:
            assert listed == ["COMPLETING"]
            time.sleep(0.1)
            listed = slurm.ask("squeue", "--noheader", "--format=%T").split()
        ended = engine.containers.get(f"penstock-{state.id}").attrs["State"]
        assert ended["ExitCode"] == 0, "it had no time to end by itself"
        assert (state.status, state.error, state.lost) == (ContainerStatus.FAILED, LEASE_ENDED, True)
    assert asyncio.run(launcher.release([lease])) == {lease: "CANCELLED"}


def test_without_a_step_nothing_starts(leased: Agent, lease: Lease, spec: MakeSpec) -> None:
    with leased.client() as client:
        answer = put(client, spec(lease=str(lease)))
        assert answer.status_code == 409
        assert "the step of its lease has not begun on this node" in answer.text
        assert not states(client)


def test_a_container_goes_on_while_its_agent_is_started_again(
    leased: Agent, launcher: SlurmLauncher, lease: Lease, spec: MakeSpec
) -> None:
    asyncio.run(launcher.admit(lease, PLACES))
    with leased.client() as client:
        state = launch(client, spec(lease=str(lease)))
    leased.stop()
    leased.start()
    with leased.client() as client:
        assert states(client)[state.id].status is ContainerStatus.RUNNING
        client.delete(f"/v1/containers/{state.id}", params={"grace_s": 0}).raise_for_status()
    assert asyncio.run(launcher.release([lease])) == {}


def test_a_step_that_is_killed_ends_its_container(
    leased: Agent, slurm: Slurm, launcher: SlurmLauncher, lease: Lease, spec: MakeSpec
) -> None:
    asyncio.run(launcher.admit(lease, PLACES))
    with leased.client() as client:
        state = launch(client, spec(lease=str(lease)))
        slurm.ask("scancel", "--signal=KILL", "--full", "--user=root")
        assert wait_for(client, state.id, ContainerStatus.FAILED).lost
