"""The arbiter's plans, as the files of the containers have them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from appliance.agent.shares.arbiter import Arbiter
from appliance.agent.shares.own_windows import give_own_windows
from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu import layout, timetable
from appliance.gpu.accelerators import Accelerator
from appliance.gpu.balance import PARTS
from appliance.gpu.devices import Gpus
from appliance.gpu.preload import Preload
from appliance.gpu.share_files import LimitsFile
from appliance.gpu.timetable import Window, current
from common.errors import UnavailableError
from common.gpu.kinds import Compute, Enforcement
from common.gpu.share import GpuShare
from tests.unit.appliance.agent.shares.test_share_manager import Accelerated, gpu_share
from tests.unit.appliance.gpu.samples import GPU, SECOND

PERIOD = 200_000_000
QUARTER_OF_ALL = PERIOD // 4


class Node:
    """Containers on shared GPUs, a clock that a test turns, and their accounts."""

    def __init__(self, folder: Path, mode: Compute) -> None:
        self.now = 10**12 + 1
        self.folder = folder
        library = folder / "lib.so"
        library.touch()
        self.preload = Preload(library, folder / "gpu", mode)
        kinds: list[Accelerator] = [Accelerated("nvidia")]
        enforcers = {Enforcement.SHIM: self.preload}
        self.shares = ShareManager(Gpus([GPU, SECOND]), kinds, enforcers, [Enforcement.SHIM], folder / "gpu")
        self.arbiter = Arbiter(self.shares, self.preload, mode, 200, clock=lambda: self.now)

    def run(self, identity: str, *gpu_shares: GpuShare) -> None:
        self.shares.prepare(identity, gpu_shares)

    def wants(self, *identities: str) -> None:
        """Let containers want to launch on their first GPU now."""
        for identity in identities:
            path = self.folder / "gpu" / identity / "account/account"
            head = layout.AccountHead.from_buffer_copy(path.read_bytes())
            head.gpu[0].wanted_ns = self.now
            with path.open("r+b") as file:
                file.write(bytes(head))

    def worked(self, identity: str, *intervals: tuple[int, int]) -> None:
        """Let a process of a container have had work on its first GPU, from and to so many ms ago."""
        log = layout.LogRecord()
        for number, (begun, ended) in enumerate(intervals, start=1):
            times = self.now - begun * 1_000_000, self.now - ended * 1_000_000
            log.interval[number] = layout.IntervalRecord(number, *times, times[1] - times[0], 1)
        with (self.folder / "gpu" / identity / "account/account").open("r+b") as file:
            file.seek(layout.LOGS_AT)
            file.write(bytes(log))

    def owes(self, identity: str, debt_ns: int, owed_ns: int) -> None:
        """Let a container owe, and be owed, so much of its first GPU."""
        path = self.folder / "gpu" / identity / "account/account"
        head = layout.AccountHead.from_buffer_copy(path.read_bytes())
        head.gpu[0].debt_ns, head.gpu[0].owed_ns = debt_ns, owed_ns
        with path.open("r+b") as file:
            file.write(bytes(head))

    def forgotten(self, identity: str) -> int:
        """The ns that a container is to forget of what is owed to it, in all."""
        return self.preload.limits(identity).forgotten("GPU-1")

    def lost(self, identity: str) -> int:
        """The ms that a container is given back, in all."""
        data = (self.folder / "gpu" / identity / "limits/limits").read_bytes()
        return int(layout.LimitsRecord.from_buffer_copy(data).lost_ns[0]) // 1_000_000

    def plan(self, periods: float = 0) -> None:
        self.now += int(periods * PERIOD)
        self.arbiter.plan_once()

    def window(self, identity: str, now_ns: int, uuid: str = "GPU-1") -> Window:
        """What the library keeps to at a time."""
        file = self.preload.limits(identity)
        return current([*file.windows(uuid), file.fallback(uuid)], now_ns)

    def windows(self, uuid: str = "GPU-1") -> dict[str, tuple[int, int]]:
        """What is valid a period later, when every plan has come: offset and length, in hundredths of a period."""
        found = {}
        for identity in self.shares.holdings:
            window = self.window(identity, self.now + PERIOD + PERIOD // 4, uuid)
            found[identity] = window.offset_ns * 100 // PERIOD, window.length_ns * 100 // PERIOD
        return found


def test_strict_windows_stay_whoever_launches(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 300))
    node.run("b", gpu_share(GPU, 500))
    node.plan()
    assert node.windows() == {"a": (0, 30), "b": (30, 50)}
    node.wants("a")
    node.plan(10)
    assert node.windows() == {"a": (0, 30), "b": (30, 50)}


def test_idle_time_goes_to_the_others_in_ratio_and_comes_back_to_who_works_again(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 500))
    node.run("b", gpu_share(GPU, 250))
    node.run("c", gpu_share(GPU, 250))
    node.wants("a", "b", "c")
    node.plan()
    assert node.windows() == {"a": (0, 50), "b": (50, 25), "c": (75, 25)}
    for _ in range(20):
        node.wants("b", "c")
        node.plan(0.25)
    # a may launch at any time, with half of the share of who has a window then
    assert node.windows() == {"a": (0, 100), "b": (0, 50), "c": (50, 50)}
    asked = node.now
    for _ in range(8):
        node.wants("a", "b", "c")
        node.plan(0.25)
    begins = max(window.from_ns for window in node.preload.limits("a").windows("GPU-1"))
    assert begins - asked <= PERIOD * 3.35
    assert begins % PERIOD == 0
    assert node.windows() == {"a": (0, 50), "b": (50, 25), "c": (75, 25)}


def test_who_launches_once_in_a_while_moves_the_windows_of_nobody(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    for name, milli in (("a", 300), ("b", 600), ("c", 100)):
        node.run(name, gpu_share(GPU, milli))
    for look in range(80):
        # a launch each second, which waits for its window for most of a period
        node.wants(*(["a", "b", "c"] if look >= 40 and look % 20 < 4 else ["a", "b"]))
        node.plan(0.25)
        if look > 20:
            assert node.windows() == {"a": (0, 33), "b": (33, 66), "c": (80, 20)}, look


def test_where_nobody_launches_everybody_has_a_window(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 600))
    node.run("b", gpu_share(GPU, 200))
    node.plan(10)
    assert node.windows() == {"a": (0, 75), "b": (75, 25)}


def test_newcomers_leavers_and_other_shares_change_the_plan_of_their_gpu_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 400), gpu_share(SECOND, 250))
    node.plan()
    elsewhere = node.preload.limits("a").windows("GPU-2")
    node.run("b", gpu_share(GPU, 400))
    node.plan(2)
    assert node.windows() == {"a": (0, 40), "b": (40, 40)}
    node.shares.set_shares("a", [gpu_share(GPU, 100), gpu_share(SECOND, 250)])
    node.plan(2)
    assert node.windows() == {"a": (0, 10), "b": (10, 40)}
    node.shares.release("a")
    node.plan(2)
    assert node.windows() == {"b": (0, 40)}
    assert Window() in elsewhere, "written once, and not again"


def test_whole_gpus_have_no_timetable(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 1000))
    node.plan()
    assert node.preload.limits("a").windows("GPU-1") == (Window(), Window())


def test_a_plan_is_written_once_and_before_it_is_valid(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 500))
    node.plan()
    first = node.preload.limits("a").windows("GPU-1")
    [window] = [window for window in first if window.period_ns]
    assert window.from_ns >= node.now + PERIOD // 10
    for _ in range(8):
        node.plan(0.25)
    assert node.preload.limits("a").windows("GPU-1") == first


def test_the_next_agent_plans_over_what_the_last_one_left(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 500))
    node.plan()
    node.now += 5 * PERIOD
    again = Arbiter(node.shares, node.preload, Compute.STRICT, 100, clock=lambda: node.now)
    again.plan_once()
    window = current(node.preload.limits("a").windows("GPU-1"), node.now + PERIOD)
    assert (window.period_ns, window.length_ns) == (PERIOD // 2, QUARTER_OF_ALL)


def test_after_an_agent_that_was_killed_everybody_gets_the_window_of_its_share(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 500), gpu_share(SECOND, 1000))
    node.run("b", gpu_share(GPU, 250))
    for _ in range(20):
        node.wants("a")
        node.plan(0.25)
    assert node.windows() == {"a": (0, 100), "b": (33, 66)}
    (tmp_path / "gpu/c/limits").mkdir(parents=True)
    (tmp_path / "gpu/c/limits/limits").write_text("spoilt")
    give_own_windows(tmp_path / "gpu", node.now)
    assert node.windows() == {"a": (0, 66), "b": (66, 33)}
    assert node.preload.limits("a").windows("GPU-2") == (Window(), Window()), "nobody shares it"


def test_where_the_agent_hangs_all_go_over_to_the_windows_of_their_shares_together(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 500))
    node.run("b", gpu_share(GPU, 250))
    for _ in range(40):
        node.wants("a")
        node.plan(0.25)
    assert node.windows() == {"a": (0, 100), "b": (33, 66)}
    hung = node.now
    falls = {node.preload.limits(name).fallback("GPU-1").from_ns for name in ("a", "b")}
    assert len(falls) == 1
    [fall] = falls
    assert timetable.GRACE_NS - PERIOD <= fall - hung <= timetable.GRACE_NS + PERIOD
    assert fall % PERIOD == 0
    assert [node.window(name, fall - 1).length_ns for name in ("a", "b")] == [PERIOD, PERIOD - PERIOD // 3]
    assert [node.window(name, fall).length_ns * 100 // PERIOD for name in ("a", "b")] == [66, 33]
    assert node.window("b", fall).offset_ns == node.window("a", fall).length_ns
    # it goes on: the next plan begins with a period, and until then nothing moves
    node.now = fall + 3 * PERIOD + 7
    node.wants("a")
    with capture_logs() as lines:
        node.plan()
        again = node.now
        for _ in range(8):
            node.wants("a")
            node.plan(0.25)
    assert [line["event"] for line in lines] == ["windows were those of the shares for a while: the agent was held up"]
    boundary = timetable.boundary(again, PERIOD, PERIOD // timetable.LEAD)
    assert node.preload.limits("b").fallback("GPU-1").from_ns > node.now + timetable.GRACE_NS - PERIOD
    assert [node.window(name, boundary).length_ns for name in ("a", "b")] == [PERIOD, PERIOD - PERIOD // 3]


def test_until_the_plan_after_a_fallback_is_valid_the_fallback_stays(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.FAIR)
    node.run("a", gpu_share(GPU, 500))
    node.run("b", gpu_share(GPU, 250))
    for _ in range(16):
        node.wants("a")
        node.plan(0.25)
    fall = node.preload.limits("b").fallback("GPU-1").from_ns
    node.now = fall + PERIOD // 10
    for _ in range(2):
        node.wants("a")
        node.plan(0.25)
        assert node.window("b", node.now).from_ns == fall


def test_strict_plans_need_no_fallback(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 500))
    node.plan()
    assert node.preload.limits("a").fallback("GPU-1") == Window()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_plan_that_does_not_end_is_known_for_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, Compute.FAIR)
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(120)

    monkeypatch.setattr(node.arbiter, "plan_once", hang)
    assert not node.arbiter.is_stuck()
    task = asyncio.create_task(node.arbiter.run())
    await asyncio.to_thread(begun.wait, 10)
    assert not node.arbiter.is_stuck()
    node.now += timetable.GRACE_NS + 1
    assert node.arbiter.is_stuck()
    go_on.set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_where_there_is_no_plan_nobody_gets_a_window(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 500))
    give_own_windows(tmp_path / "gpu", node.now)
    assert node.preload.limits("a").windows("GPU-1") == (Window(), Window())


def test_a_file_that_does_not_take_the_plan_gets_it_as_soon_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 500))
    node.run("b", gpu_share(GPU, 500))
    limits, refused = node.preload.limits, {"a"}

    def may_refuse(container: str) -> LimitsFile:
        if container in refused:
            raise UnavailableError("no")
        return limits(container)

    monkeypatch.setattr(node.preload, "limits", may_refuse)
    with capture_logs() as lines:
        node.plan()
        node.plan(1)
    assert [line["id"] for line in lines] == ["a"], "said once"
    written = limits("b").windows("GPU-1")
    refused.clear()
    node.plan(1)
    assert node.windows() == {"a": (0, 50), "b": (50, 50)}
    assert limits("b").windows("GPU-1") == written, "who has the plan is left alone"


@pytest.mark.parametrize("mode", [Compute.STRICT, Compute.FAIR])
def test_containers_get_back_what_they_took_from_each_other(tmp_path: Path, mode: Compute) -> None:
    node = Node(tmp_path, mode)
    node.run("a", gpu_share(GPU, 300))
    node.run("b", gpu_share(GPU, 700))
    node.plan()
    node.worked("a", (90, 10))
    node.worked("b", (60, 0))
    node.plan()
    assert (node.lost("a"), node.lost("b")) == (25, 25)
    node.plan()
    assert (node.lost("a"), node.lost("b")) == (25, 25), "once"


def test_an_agent_that_begins_anew_settles_nothing_twice(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 300))
    node.run("b", gpu_share(GPU, 700))
    node.plan()
    for name in "ab":
        node.worked(name, (100, 0))
    node.plan()
    node.arbiter = Arbiter(node.shares, node.preload, Compute.STRICT, 200, clock=lambda: node.now)
    node.plan()
    assert (node.lost("a"), node.lost("b")) == (50, 50)


def test_a_container_whose_account_is_gone_keeps_nobody_from_their_own(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    for name in "abc":
        node.run(name, gpu_share(GPU, 300))
    node.plan()
    (tmp_path / "gpu/c/account/account").unlink()
    for name in "ab":
        node.worked(name, (100, 0))
    node.plan()
    assert (node.lost("a"), node.lost("b"), node.lost("c")) == (50, 50, 0)


def test_what_is_worked_while_the_agent_plans_counts_as_well(tmp_path: Path) -> None:
    node = Node(tmp_path, Compute.STRICT)
    node.run("a", gpu_share(GPU, 300))
    node.run("b", gpu_share(GPU, 700))
    node.plan()
    readings = iter([node.now])
    node.arbiter._clock = lambda: next(readings, node.now + 100_000_000)
    for name in "ab":
        node.worked(name, (60, -40))
    node.plan()
    assert (node.lost("a"), node.lost("b")) == (50, 50)


@pytest.mark.parametrize(("mode", "expected"), [(Compute.FAIR, 2400 // PARTS), (Compute.STRICT, 0)])
def test_what_is_owed_and_nobody_with_work_owes_is_forgotten_bit_by_bit_in_fair_mode(
    tmp_path: Path, mode: Compute, expected: int
) -> None:
    node = Node(tmp_path, mode)
    for identity, milli, debt_ns, owed_ns in (("a", 200, 0, 2400), ("b", 200, 1600, 0), ("c", 200, 0, 1600)):
        node.run(identity, gpu_share(GPU, milli))
        node.owes(identity, debt_ns, owed_ns)
    node.wants("a", "b", "c")
    node.plan()
    total = sum(node.forgotten(identity) for identity in ("a", "c"))
    assert (total, node.forgotten("b")) == (expected, 0)
    # b has no work any more: nobody else is there to give back anything
    for _ in range(160):
        node.wants("a", "c")
        node.plan(0.25)
    assert sum(node.forgotten(identity) for identity in ("a", "c")) > 3900 if expected else not node.forgotten("a")
    assert node.forgotten("b") == 0
