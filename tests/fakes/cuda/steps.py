"""Tenants whose programs do work of several kinds, step by step, beside each other on one GPU of the virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.gpu.timetable import Sharer, plan
from common.gpu.kinds import Compute
from tests.fakes.cuda.agent import start_agent
from tests.fakes.cuda.clients import Answer, Bench, Tenant, feed, gpu_uuid, start
from tests.fakes.cuda.sharing import AFTERWARDS_S, PERIOD_NS, START_NS, nanoseconds
from tests.gpu.rows import AS_GRAPH, Work

ANEW, WITH_GRIDS = 6, 7
"""How a part is launched besides (`tests/gpu/rows.py`): on streams in turn, a function that is new each time, or one
with small grids and then with a large one, which take `TIMES` as long together as one small one."""
TIMES = 4004
BY_SYNCHRONISING, BY_EVENT, BY_ASKING, BY_STREAMS = 1, 2, 3, 4
"""How a step waits for its end."""


def commands(work: Work, milliseconds: int, wait: int = BY_SYNCHRONISING, before: Sequence[str] = ()) -> list[str]:
    """What the client is told to do for so long."""
    lines = []
    for number, (kernel, count, how) in enumerate(work.parts):
        # a node's kernel is the first one that the client knows
        graph = [f"graph {number}", f"kernelnode {number} {kernel}", f"instantiate {number} {number}"]
        names = [f"kernel 0 {kernel}", *graph] if how == AS_GRAPH else []
        lines += [*names, f"kernel {number} {kernel}", f"part {number} {count} {how}"]
    lines += [f"stream {name}" for name in range(work.streams)]
    return ["init", "primary 0 0", *lines, *before, f"steps {milliseconds} {wait if work.waits else 0} {work.every_ms}"]


@dataclass(frozen=True)
class Got:
    """What a tenant got: its part of the GPU in all, and of the time in which it had work; its steps, in ms; and what
    its account says, as a part of the time.
    """

    part: float
    part_while_working: float
    longest_ms: float
    mean_ms: float
    busy: float

    def used(self, milli: int) -> float:
        """The part of the GPU that it used, or had to itself while it had no work."""
        working = self.part / self.part_while_working
        return self.part + max(1 - working, 0) * milli / 1000


def together(
    bench: Bench,
    clock: Path,
    folder: Path,
    tenants: Sequence[tuple[int, Work]],
    seconds: int = 30,
    *,
    held: bool = True,
    machine: Mapping[str, str] | None = None,
    wait: int = BY_SYNCHRONISING,
    before: Sequence[str] = (),
    planned_after_s: int = 0,
    beside: Sequence[tuple[int, Work]] = (),
    mode: Compute = Compute.STRICT,
) -> list[Got]:
    """Let tenants, each (share in thousandths, work), run for so many seconds; returns what each got.

    The timetable is valid after `planned_after_s`. `beside` are works of other processes, each (number of its tenant,
    work), which are not counted. Without `held` nothing holds the shares. `machine` are settings of
    the fake machine, and `before` are commands that come before the steps.
    """
    sharers = [Sharer(str(index), milli) for index, (milli, _) in enumerate(tenants)]
    windows = plan(sharers, mode, PERIOD_NS, START_NS + planned_after_s * 1_000_000_000)
    clocked = {"VIRTUAL_CLOCK": str(folder / "clock"), "VIRTUAL_CLOCK_PARTIES": str(len(tenants) + len(beside) + 1)}
    running = []
    for index, (milli, work) in enumerate(tenants):
        tenant = Tenant(
            bench,
            folder / f"tenant-{index}",
            [0],
            machine_folder=folder,
            milli=milli,
            compute=mode,
            preload=[clock, bench.shim] if held else [clock],
            settings={
                **clocked,
                **(machine or {}),
            },
        )
        tenant.file.schedule({gpu_uuid(0): windows[str(index)]}, START_NS)
        running.append((tenant, work, start(tenant)))
    folders = [tenant.folder for tenant, _, _ in running]
    others = [start(running[number][0]) for number, _ in beside]
    agent = start_agent(clock, clocked, folders, START_NS + (seconds + AFTERWARDS_S) * 1_000_000_000, mode)
    for _, work, process in running:
        feed(process, "\n".join([*commands(work, seconds * 1000, wait, before), ""]))
    for (_, work), process in zip(beside, others, strict=True):
        feed(process, "\n".join([*commands(work, seconds * 1000), ""]))
    found = []
    try:
        for tenant, work, process in running:
            output, errors = process.communicate(timeout=120)
            answers = [Answer.parse(line) for line in output.splitlines()]
            assert (process.returncode, errors, [answer.code for answer in answers if answer.code]) == (0, "", [])
            took, longest, count, *launches = answers[-1].told
            lengths = [nanoseconds(kernel) * (TIMES if how == WITH_GRIDS else 1) for kernel, _, how in work.parts]
            computed = sum(each * length for each, length in zip(launches, lengths, strict=True))
            found.append(
                Got(
                    computed / (seconds * 1e9),
                    computed / took,
                    longest / 1e6,
                    took / count / 1e6,
                    tenant.total().busy_ns / (seconds * 1e9),
                )
            )
    finally:
        for process in (*(process for _, _, process in running), *others, agent):
            process.kill()
            process.communicate()
    return found
