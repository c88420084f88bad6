"""Tenants that compute on one GPU at the same time, on a clock on which minutes pass at once."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from appliance.gpu.timetable import Sharer, plan, plan_for_all
from common.gpu.kinds import Compute
from tests.fakes.cuda.agent import start_agent
from tests.fakes.cuda.clients import Answer, Bench, Tenant, feed, gpu_uuid, start

PERIOD_NS = 200_000_000
AFTERWARDS_S = 60
"""The agent goes on for so much longer: work may end late."""
START_NS = 1000 * 1_000_000_000
"""When the virtual clock begins."""


def shares(
    bench: Bench,
    clock: Path,
    folder: Path,
    milli: Sequence[int],
    work: Sequence[str],
    *,
    seconds: int = 30,
    mode: Compute = Compute.STRICT,
    way: str = "proc:0",
    processes: int = 1,
    hung_after_s: int = 0,
) -> list[float]:
    """Let tenants with these shares run their work for so many seconds; returns the part of the GPU that each got.

    Work is "kernel ahead how": a kernel's name, how many launches stand between synchronisations, and how they are
    made (0 kernel, 1 extended, 2 cooperative, 3 graph, 4 kernels on 70 streams in turn). With `hung_after_s` the agent
    hangs with a plan in which the first tenant is idle, and its fallback comes after so many seconds.
    """
    sharers = [Sharer(str(index), share, active=not hung_after_s or index > 0) for index, share in enumerate(milli)]
    windows = plan(sharers, mode, PERIOD_NS, START_NS)
    fallback = plan_for_all(sharers, mode, PERIOD_NS, START_NS + hung_after_s * 1_000_000_000)
    agents = 0 if hung_after_s else 1
    parties = str(len(milli) * processes + agents)
    clocked = {"VIRTUAL_CLOCK": str(folder / "clock"), "VIRTUAL_CLOCK_PARTIES": parties}
    running: list[tuple[int, subprocess.Popen[str]]] = []
    for index, share in enumerate(milli):
        tenant = Tenant(
            bench,
            folder / f"sharing-{index}",
            [0],
            machine_folder=folder,
            milli=share,
            compute=mode,
            preload=[clock, bench.shim],
            settings=clocked,
        )
        tenant.file.schedule({gpu_uuid(0): windows[str(index)]}, START_NS)
        if hung_after_s:
            tenant.file.put_off({gpu_uuid(0): fallback[str(index)]}, START_NS)
        running += [(index, start(tenant, way)) for _ in range(processes)]
    if agents:
        folders = [folder / f"sharing-{index}" for index in range(len(milli))]
        start_agent(clock, clocked, folders, START_NS + (seconds + AFTERWARDS_S) * 1_000_000_000)
    for index, process in running:
        kernel, ahead, how = work[index % len(work)].split()
        graph = ["graph 0", f"kernelnode 0 {kernel}", "instantiate 0 0"] if how == "3" else []
        streams = [f"stream {name}" for name in range(70)] if how == "4" else []
        steps = [
            "init",
            "primary 0 0",
            f"kernel 0 {kernel}",
            *graph,
            *streams,
            f"spin 0 {seconds * 1000} {ahead} {how}",
        ]
        feed(process, "\n".join([*steps, ""]))
    got = [0.0] * len(milli)
    for index, process in running:
        kernel = work[index % len(work)].split()[0]
        output, errors = process.communicate(timeout=120)
        answers = [Answer.parse(line) for line in output.splitlines()]
        assert (process.returncode, errors, [answer.code for answer in answers if answer.code]) == (0, "", [])
        got[index] += answers[-1].told[0] * nanoseconds(kernel) / (seconds * 1e9)
    return got


def nanoseconds(kernel: str) -> int:
    """Return how long a kernel runs, by its name, such as "busy_250us"."""
    number = kernel.removeprefix("busy_")
    for unit, factor in (("ns", 1), ("us", 1000), ("ms", 1_000_000)):
        if number.endswith(unit):
            return int(number.removesuffix(unit)) * factor
    raise ValueError(kernel)
