"""Kernels that may never end: when they are told of, to whom, and that it ends with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from appliance.agent.shares.gpu_readings import GpuReadings
from appliance.agent.shares.kernel_watch import KernelWatch
from appliance.gpu import layout
from common.checks import CheckState
from common.gpu.kinds import Compute
from common.protocol import ContainerState, ContainerStatus
from tests.unit.appliance.agent.shares.test_arbiter import Node as Sharing
from tests.unit.appliance.agent.shares.test_memory_enforcer import Processes
from tests.unit.appliance.agent.shares.test_share_manager import gpu_share
from tests.unit.appliance.gpu.samples import GPU

BEGIN = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
SECOND_NS = 1_000_000_000


class Watched:
    """Two containers on one GPU, their accounts, and what NVML says of them."""

    def __init__(self, folder: Path) -> None:
        self.node = Sharing(folder, Compute.STRICT)
        self.processes = Processes()
        self.processes.by_gpu["GPU-1"] = {}
        self._folder, self._start_ns = folder, self.node.now
        for name in ("c1", "c2"):
            self.node.run(name, gpu_share(GPU, 500))
            self.node.shares.attach(name, f"engine-{name}", 1)
        readings = GpuReadings(self.node.shares, self.processes, lambda pid: {1: "engine-c1", 2: "engine-c2"}[pid])
        self.watch = KernelWatch(self.node.shares, readings, self.node.preload, lambda: self.node.now, self._wall)

    def _wall(self) -> datetime:
        return BEGIN + timedelta(microseconds=(self.node.now - self._start_ns) // 1000)

    def account(self, identity: str, **said: int) -> None:
        """Let the library say something of a container's first GPU."""
        path = self._folder / "gpu" / identity / "account/account"
        head = layout.AccountHead.from_buffer_copy(path.read_bytes())
        for name, value in said.items():
            setattr(head.gpu[0], name, value)
        with path.open("r+b") as file:
            file.write(bytes(head))

    def after(self, seconds: float) -> list[str]:
        """Let time pass, with looks on the way; returns the warnings of both."""
        for _ in range(round(seconds / 2)):
            self.node.now += 2 * SECOND_NS
            self.watch.look()
        return [self.warning(name) for name in ("c1", "c2")]

    def warning(self, identity: str) -> str:
        state = ContainerState(id=identity, session_id="s", status=ContainerStatus.RUNNING)
        return self.node.shares.dress(state).warning


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_container_that_computes_and_launches_nothing_for_ten_seconds_is_told_of_until_it_goes_on(
    watched: Watched,
) -> None:
    watched.account("c1", launches=7, busy_ns=1)
    watched.processes.permille = {1: 500, 2: 400}
    assert watched.after(10) == ["", ""]
    said = "a kernel has been running on GPU GPU-1 since 2026-11-24 12:00 UTC; it cannot be stopped"
    assert watched.after(2) == [said, ""]
    assert watched.after(60) == [said, ""]
    watched.account("c1", launches=8)
    assert watched.after(2) == ["", ""]


def test_a_container_that_computes_nothing_is_not_told_of(watched: Watched) -> None:
    watched.account("c1", launches=7)
    watched.processes.permille = {1: 20, 2: 900}
    assert watched.after(60) == ["", ""]


def test_one_that_never_launched_is_not_told_of(watched: Watched) -> None:
    watched.processes.permille = {1: 900}
    assert watched.after(60) == ["", ""]


def test_one_that_launches_behind_such_work_is_told_of_by_the_library(watched: Watched) -> None:
    watched.processes.permille = {1: 1000}
    for launches in range(8):
        watched.account("c1", launches=launches, busy_ns=launches, endless_ns=watched.node.now + 2 * SECOND_NS)
        found = watched.after(2)
    assert "since 2026-11-24 11:59 UTC" in found[0]
    # nobody waits behind it any more, or it has ended
    watched.account("c1", launches=100)
    assert watched.after(4) == ["", ""]


def test_where_nvml_cannot_tell_what_the_library_saw_counts_alone(watched: Watched) -> None:
    del watched.processes.by_gpu["GPU-1"]
    watched.account("c1", launches=7)
    assert watched.after(60) == ["", ""]
    watched.account("c1", launches=7, endless_ns=watched.node.now + 2 * SECOND_NS)
    assert watched.after(2)[0]


def test_an_account_that_names_a_time_to_come_says_nothing(watched: Watched) -> None:
    del watched.processes.by_gpu["GPU-1"]
    watched.account("c1", launches=7, endless_ns=2**64 - 1)
    assert watched.after(20) == ["", ""]


def test_the_node_warns_of_the_gpu_and_is_well_again_when_the_container_has_gone(watched: Watched) -> None:
    watched.after(2)
    assert [(check.id, check.subject, check.state) for check in watched.watch.checks()] == [
        ("gpu.kernel", "GPU-1", CheckState.OK)
    ]
    watched.account("c1", launches=7)
    watched.processes.permille = {1: 1000}
    watched.after(14)
    check = watched.watch.checks()[0]
    assert (check.state, check.evidence) == (CheckState.WARN, "container c1: since 2026-11-24 12:00 UTC")
    assert "`penstock restart`" in check.hint
    watched.node.shares.release("c1")
    watched.after(2)
    assert [check.state for check in watched.watch.checks()] == [CheckState.OK]


def test_looks_say_when_something_has_changed(watched: Watched) -> None:
    watched.account("c1", launches=7)
    watched.processes.permille = {1: 1000}
    watched.after(10)
    watched.node.now += 2 * SECOND_NS
    assert [watched.watch.look() for _ in range(2)] == [True, False]
