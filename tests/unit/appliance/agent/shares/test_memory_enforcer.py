"""What containers use, and what happens to one that uses more than its share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.agent.shares.gpu_readings import GpuReadings, Reading
from appliance.agent.shares.memory_enforcer import PATIENCE, MemoryEnforcer
from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu.layout import Total
from appliance.gpu.telemetry import Telemetry
from common.errors import UnavailableError
from common.gpu.kinds import Enforcement
from common.protocol import GpuDevice
from tests.unit.appliance.agent.shares.test_share_manager import Node, gpu_share
from tests.unit.appliance.gpu.samples import GPU, SECOND, SIMULATED

pytestmark = pytest.mark.anyio
MIB = 1 << 20


class Processes(Telemetry):
    """NVML whose processes a test sets: by GPU, pid → bytes; a GPU that is not named cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.by_gpu: dict[str, dict[int, int]] = {}
        self.permille: dict[int, int] = {}

    def memory(self, uuid: str) -> dict[int, int] | None:
        return self.by_gpu.get(uuid)

    def busy(self, uuid: str, since_us: int) -> dict[int, int] | None:
        return self.permille if uuid in self.by_gpu else None


def readings(shares: ShareManager, processes: Processes) -> GpuReadings:
    """Processes 10 to 19 are in c1, 20 to 29 in c2, others in none that is known."""
    names = {1: "engine-c1", 2: "engine-c2", 3: "someone-elses"}
    return GpuReadings(shares, processes, container_of=lambda pid: names.get(pid // 10))


class Accounts:
    """What the processes of containers say that they have of GPU-1, one number after the other, and what is charged."""

    def __init__(self, **said_mib: list[int]) -> None:
        self.said_mib = said_mib
        self.charged_mib: dict[str, dict[str, int]] = {}

    def totals(self, container: str) -> Mapping[str, Total]:
        if container not in self.said_mib:
            raise UnavailableError("it has gone")
        return {"GPU-1": Total(used_bytes=self.said_mib[container].pop(0) * MIB)}

    def charge(self, container: str, uncounted: Mapping[str, int]) -> None:
        if container == "c2":
            raise UnavailableError("it has gone")
        self.charged_mib[container] = {uuid: size // MIB for uuid, size in uncounted.items()}


def two_sharers(tmp_path: Path, *more: GpuDevice) -> Node:
    node = Node(tmp_path, GPU, *more)
    node.run("c1", gpu_share(GPU, 250))
    node.run("c2", gpu_share(GPU, 500))
    return node


def test_memory_is_summed_by_container_and_gpu(tmp_path: Path) -> None:
    processes = Processes()
    processes.by_gpu["GPU-1"] = {10: 3, 11: 4, 20: 5, 30: 6, 99: 7}
    assert readings(two_sharers(tmp_path).shares, processes).memory() == {
        "c1": {"GPU-1": Reading(7, 2)},
        "c2": {"GPU-1": Reading(5, 1)},
    }


def test_a_container_without_processes_has_nothing_and_an_unreadable_gpu_is_left_out(tmp_path: Path) -> None:
    processes = Processes()
    processes.by_gpu["GPU-1"] = {}
    node = two_sharers(tmp_path, SECOND, SIMULATED)
    node.run("c3", gpu_share(SECOND, 500), gpu_share(SIMULATED, 500))
    assert readings(node.shares, processes).memory() == {"c1": {"GPU-1": Reading()}, "c2": {"GPU-1": Reading()}}


def test_busy_time_is_summed_by_container(tmp_path: Path) -> None:
    processes = Processes()
    processes.by_gpu["GPU-1"], processes.permille = {}, {10: 300, 11: 900, 20: 50, 30: 500}
    found = readings(two_sharers(tmp_path).shares, processes)
    assert found.busy("GPU-1", 0) == {"c1": 1000, "c2": 50}
    assert found.busy("GPU-2", 0) is None


class Ended:
    """Notes who is ended, and why."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.calls = 0
        self.refuses = False

    async def __call__(self, identity: str, reason: str) -> None:
        self.calls += 1
        if self.refuses:
            raise UnavailableError("Docker is away")
        self.reasons[identity] = reason


async def test_a_container_over_its_limit_is_warned_at_once_and_ended_when_it_stays_there(tmp_path: Path) -> None:
    node, processes, ended = two_sharers(tmp_path), Processes(), Ended()
    enforcer = MemoryEnforcer(node.shares, readings(node.shares, processes), Accounts(), 512, ended)
    reason = "GPU memory over the limit: 3073 MiB of GPU GPU-1 are in use, and 2048 MiB are given"
    processes.by_gpu["GPU-1"] = {10: 2000 * MIB, 11: 1073 * MIB, 20: 4096 * MIB}
    assert await enforcer.check_once(), "the warning is news"
    assert node.shares.holdings["c1"].warning == reason
    for _ in range(PATIENCE - 2):
        assert not await enforcer.check_once()
    assert ended.reasons == {}
    await enforcer.check_once()
    assert ended.reasons == {"c1": reason}
    assert node.shares.holdings["c2"].warning == ""
    # one that Docker could not stop is tried again
    for _ in range(PATIENCE - 1):
        await enforcer.check_once()
    assert ended.calls == 1
    await enforcer.check_once()
    assert ended.calls == 2


async def test_one_that_cannot_be_stopped_keeps_nobody_else_from_it(tmp_path: Path) -> None:
    node, processes, ended = two_sharers(tmp_path), Processes(), Ended()
    ended.refuses = True
    processes.by_gpu["GPU-1"] = {10: 8000 * MIB, 20: 8000 * MIB}
    enforcer = MemoryEnforcer(node.shares, readings(node.shares, processes), Accounts(), 0, ended)
    for _ in range(PATIENCE):
        await enforcer.check_once()
    assert ended.calls == 2
    assert all(holding.warning for holding in node.shares.holdings.values())


async def test_slack_is_no_excess_and_who_comes_back_is_forgiven(tmp_path: Path) -> None:
    node, processes, ended = two_sharers(tmp_path), Processes(), Ended()
    enforcer = MemoryEnforcer(node.shares, readings(node.shares, processes), Accounts(), 512, ended)
    # two processes have 512 MiB each
    over, within = {10: 1000 * MIB, 11: 2073 * MIB}, {10: 1000 * MIB, 11: 2072 * MIB}
    for _ in range(3):
        for check in range(PATIENCE):
            processes.by_gpu["GPU-1"] = over if check else within
            await enforcer.check_once()
    processes.by_gpu["GPU-1"] = within
    assert await enforcer.check_once(), "the end of the warning is news"
    assert node.shares.holdings["c1"].warning == ""
    assert ended.reasons == {}


@pytest.mark.parametrize(
    ("said_mib", "charged_mib"),
    [([300, 300], 200), ([300, 400], 100), ([500, 100], 0), ([600, 600], 0)],
)
async def test_what_the_account_does_not_know_is_charged(tmp_path: Path, said_mib: list[int], charged_mib: int) -> None:
    node, processes, accounts = two_sharers(tmp_path), Processes(), Accounts(c1=2 * said_mib, c2=[0] * 4)
    for name in ("c1", "c2"):
        node.shares.holdings[name].kind = Enforcement.SHIM
    processes.by_gpu["GPU-1"] = {10: 400 * MIB, 11: 100 * MIB, 20: 100 * MIB}
    enforcer = MemoryEnforcer(node.shares, readings(node.shares, processes), accounts, 512, Ended())
    for _ in range(2):
        await enforcer.check_once()
    assert accounts.charged_mib == {"c1": {"GPU-1": charged_mib}}


async def test_only_what_two_looks_in_a_row_find_is_charged(tmp_path: Path) -> None:
    said = [0, 0, 300, 300, 400, 400, 500, 500]
    node, processes, accounts = two_sharers(tmp_path), Processes(), Accounts(c1=said)
    node.shares.holdings["c1"].kind = Enforcement.SHIM
    processes.by_gpu["GPU-1"] = {10: 500 * MIB}
    enforcer = MemoryEnforcer(node.shares, readings(node.shares, processes), accounts, 512, Ended())
    charged = []
    for _ in range(4):
        await enforcer.check_once()
        charged.append(accounts.charged_mib["c1"]["GPU-1"])
    # memory that was taken and freed between the readings of one look is no difference
    assert charged == [0, 200, 100, 0]


async def test_what_nobody_can_read_is_not_charged_anew(tmp_path: Path) -> None:
    node, processes, accounts = two_sharers(tmp_path), Processes(), Accounts(c1=[300, 300])
    node.shares.holdings["c1"].kind = Enforcement.SHIM
    await MemoryEnforcer(node.shares, readings(node.shares, processes), accounts, 512, Ended()).check_once()
    assert accounts.charged_mib == {"c1": {}}


async def test_a_raised_share_counts_at_once(tmp_path: Path) -> None:
    node, processes = two_sharers(tmp_path), Processes()
    enforcer = MemoryEnforcer(node.shares, readings(node.shares, processes), Accounts(), 0, Ended())
    processes.by_gpu["GPU-1"] = {10: 4000 * MIB}
    await enforcer.check_once()
    node.shares.set_shares("c1", [gpu_share(GPU, 500)])
    assert await enforcer.check_once()
    assert node.shares.holdings["c1"].warning == ""


@pytest.mark.parametrize("kind", [Enforcement.NONE, Enforcement.MIG])
async def test_shares_that_are_only_accounted_for_are_not_watched(tmp_path: Path, kind: Enforcement) -> None:
    node, processes = two_sharers(tmp_path), Processes()
    node.shares.holdings["c1"].kind = kind
    processes.by_gpu["GPU-1"] = {10: 8000 * MIB}
    assert not await MemoryEnforcer(node.shares, readings(node.shares, processes), Accounts(), 0, Ended()).check_once()


async def test_a_whole_gpu_has_no_limit(tmp_path: Path) -> None:
    node, processes = Node(tmp_path, GPU), Processes()
    node.run("c1", gpu_share(GPU, 1000))
    processes.by_gpu["GPU-1"] = {10: 9000 * MIB}
    assert not await MemoryEnforcer(node.shares, readings(node.shares, processes), Accounts(), 0, Ended()).check_once()
