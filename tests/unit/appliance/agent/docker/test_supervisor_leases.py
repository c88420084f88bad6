"""Containers below a lease: where they are made, and what comes of them when it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from appliance.agent.docker.inspections import NEVER
from appliance.agent.docker.leases import GRACE_S, Leases
from common.lease_protocol import LEASE_ENDED
from common.protocol import ContainerStatus
from tests.unit.appliance.agent.docker.supervised import SPEC, FakeEngine, ended, found, supervise, until

pytestmark = pytest.mark.anyio

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
