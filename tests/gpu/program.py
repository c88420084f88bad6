"""A program that uses a GPU as its arguments say; it prints JSON lines. Each line on its input goes one step further.

show                       the memory that it sees, again with each line
fill plain|async|virtual   allocates until there is no more, and tells how much that was
blocks COUNT SIZE          allocates, says so and waits until its input ends
context                    a context; with a line, kernels and streams as well
waits                      runs a kernel and waits for it, again with each line; ends where that fails
busy                       launches kernels of seconds that nobody waits for
calibrate NAME...          rounds and lengths of kernels on a GPU that nobody else uses
work SPEC COUNTERS         does work over and over until it is killed
resolve                    which library the ways to a function lead to
identity                   whether both ways lead to the same place
nvml                       what NVML shows of memory and processes
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.gpu import leash
from tests.gpu.counters import Counters, open_counters
from tests.gpu.driver import BLOCK, Gpu, Kernels, calibrate
from tests.gpu.rows import AS_GRAPH, ON_STREAMS, Work

SEEN = 0.3
"""Seconds for which a full GPU stays so, that those see it who watch it."""
AHEAD = 8
"""Launches that a program which never waits has in flight."""
LOOK_S = 0.002

SAME = {
    "cuMemAlloc_v2": ("cuMemAlloc", 3020),
    "cuMemFree_v2": ("cuMemFree", 3020),
    "cuMemGetInfo_v2": ("cuMemGetInfo", 3020),
    "cuMemAllocPitch_v2": ("cuMemAllocPitch", 3020),
    "cuMemAllocManaged": ("cuMemAllocManaged", 6000),
    "cuMemCreate": ("cuMemCreate", 10020),
    "cuMemRelease": ("cuMemRelease", 10020),
    "cuMemAllocAsync": ("cuMemAllocAsync", 11020),
    "cuMemFreeAsync": ("cuMemFreeAsync", 11020),
    "cuLaunchKernel": ("cuLaunchKernel", 4000),
    "cuGraphLaunch": ("cuGraphLaunch", 10000),
    "cuCtxSynchronize": ("cuCtxSynchronize", 2000),
    "cuStreamSynchronize": ("cuStreamSynchronize", 2000),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain", 7000),
}
"""Symbols of the library, and by which name and version of CUDA `cuGetProcAddress` finds the same function."""


def say(found: object) -> None:
    """Print one line for who has started this program."""
    print(json.dumps(found), flush=True)


def lines() -> Callable[[], bool]:
    """Return what waits for the next line, and tells whether there was one."""
    return lambda: bool(sys.stdin.readline())


def show(gpu: Gpu) -> None:
    """Tell what memory there is, once and with each line."""
    more = lines()
    while True:
        free, total = gpu.memory()
        say({"free": free, "total": total})
        if not more():
            return


def fill(gpu: Gpu, how: str) -> None:
    """Allocate until the driver refuses; tells the bytes and the code of the refusal."""
    allocate: dict[str, Callable[[], int]] = {"plain": gpu.plain, "async": gpu.ordered, "virtual": gpu.virtual}
    held = 0
    while not (code := allocate[how]()):
        held += BLOCK
    time.sleep(SEEN)
    say({"held": held, "code": code, "free": gpu.memory()[0]})


def blocks(gpu: Gpu, count: str, size: str) -> None:
    """Allocate blocks of one size and keep them."""
    say({"granularity": gpu.granularity()})
    lines()()
    codes = [gpu.plain(int(size)) for _ in range(int(count))]
    say({"refused": sum(map(bool, codes))})
    lines()()


def context(gpu: Gpu) -> None:
    """Have a context, then use it as a program does that computes."""
    more = lines()
    say({"stage": "context"})
    more()
    kernels = Kernels(gpu, {})
    streams = [gpu.stream() for _ in range(32)]
    for stream in streams:
        kernels.launcher("busy_2ms", stream)()
    gpu.synchronise()
    say({"stage": "used"})
    more()


def waits(gpu: Gpu) -> None:
    """Run a kernel and wait for it, once and with each line: only who waits notices that all is lost."""
    more, launch = lines(), Kernels(gpu, {}).launcher("busy_5us")
    while True:
        launch()
        gpu.synchronise()
        say({"ended": True})
        if not more():
            return


def busy(gpu: Gpu) -> None:
    """Have work in flight for some seconds."""
    rounds, _ = calibrate(gpu, [])
    launch = Kernels(gpu, rounds).launcher("busy_2000ms")
    launch()
    say({"launched": True})
    lines()()


class Worker:
    """One program's work, counted where the judge sees it."""

    def __init__(self, gpu: Gpu, work: Work, rounds: dict[str, int], counters: Counters) -> None:
        self._gpu, self._work, self._counters = gpu, work, counters
        kernels = Kernels(gpu, rounds)
        streams = [gpu.stream() for _ in range(work.streams)]
        self._streams = streams
        self._launchers: list[list[Callable[[], None]]] = []
        for name, _, how in work.parts:
            if how == ON_STREAMS:
                self._launchers.append([kernels.launcher(name, stream) for stream in streams])
            else:
                self._launchers.append([kernels.graph(name) if how == AS_GRAPH else kernels.launcher(name)])

    def run(self) -> None:
        """Work until somebody ends this process, and rest while the judge says so."""
        self._counters.ready = 1
        while not self._counters.go:
            time.sleep(LOOK_S)
        step = self._step if self._work.waits else self._ahead()
        due = time.monotonic_ns()
        while True:
            while self._counters.pause:
                time.sleep(LOOK_S)
            begun = time.monotonic_ns()
            step()
            took = time.monotonic_ns() - begun
            self._counters.steps += 1
            self._counters.working_ns += took
            self._counters.longest_ns = max(self._counters.longest_ns, took)
            if self._work.every_ms:
                due = max(due + self._work.every_ms * 1_000_000, time.monotonic_ns())
                time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)

    def _step(self) -> None:
        for number, ((_, count, _), launchers) in enumerate(zip(self._work.parts, self._launchers, strict=True)):
            turn = cycle(launchers)
            for _ in range(count):
                next(turn)()
            self._gpu.synchronise()
            self._counters.done[number] += count

    def _ahead(self) -> Callable[[], None]:
        """Return a step that launches without waiting for what it launched; only so much of it is in flight."""
        turn = cycle(list(enumerate(self._launchers[0])))
        flying: deque[ctypes.c_void_p] = deque()
        spare = [self._gpu.event() for _ in range(AHEAD)]

        def step() -> None:
            while flying and (len(flying) == AHEAD or not self._gpu.call("cuEventQuery", flying[0])):
                if self._gpu.call("cuEventQuery", flying[0]):
                    time.sleep(LOOK_S)
                    continue
                spare.append(flying.popleft())
                self._counters.done[0] += 1
            number, launch = next(turn)
            launch()
            event = spare.pop()
            self._gpu.must("cuEventRecord", event, self._streams[number] if self._streams else None)
            flying.append(event)

        return step


def work(gpu: Gpu, spec: str, counters: str) -> None:
    """Do the work of a specification."""
    given = json.loads(spec)
    Worker(gpu, Work(**given["work"]), given["rounds"], open_counters(Path(counters))).run()


class _Info(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p if "at" in name else ctypes.c_char_p) for name in ("file", "at", "name", "at2")
    )


def address(gpu: Gpu, symbol: str, version: int) -> int | None:
    """Return where cuGetProcAddress finds a function."""
    pointer, status = ctypes.c_void_p(), ctypes.c_int()
    flags = ctypes.c_uint64(0)
    code = gpu.call("cuGetProcAddress_v2", symbol.encode(), ctypes.byref(pointer), version, flags, ctypes.byref(status))
    return None if code else pointer.value


def resolve(gpu: Gpu) -> None:
    """Tell the files of the libraries in which dlsym and cuGetProcAddress find an allocator."""

    def file(place: int | None) -> str:
        found = _Info()
        ctypes.CDLL(None).dladdr(ctypes.c_void_p(place), ctypes.byref(found))
        return Path((found.file or b"-").decode()).name

    named = ctypes.cast(gpu.library.cuMemAlloc_v2, ctypes.c_void_p).value
    say({"dlsym": file(named), "cuGetProcAddress_v2": file(address(gpu, "cuMemAlloc", 12000))})


def identity(gpu: Gpu) -> None:
    """Tell which functions dlsym and cuGetProcAddress find at different places."""
    other = [
        name
        for name, (symbol, version) in SAME.items()
        if ctypes.cast(getattr(gpu.library, name), ctypes.c_void_p).value != address(gpu, symbol, version)
    ]
    say({"asked": len(SAME), "other": other})


def nvml(gpu: Gpu) -> None:
    """Tell what NVML shows of the first GPU, with memory of our own on it."""
    import pynvml

    gpu.plain()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    total = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    pids = [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    say({"total": total, "pids": pids, "pid": os.getpid()})
    lines()()


def measure(gpu: Gpu, *names: str) -> None:
    """Tell rounds and lengths of kernels."""
    rounds, lengths = calibrate(gpu, names)
    say({"rounds": rounds, "lengths": lengths})


COMMANDS: dict[str, Callable[..., None]] = {
    "show": show,
    "fill": fill,
    "blocks": blocks,
    "context": context,
    "calibrate": measure,
    "waits": waits,
    "busy": busy,
    "work": work,
    "resolve": resolve,
    "identity": identity,
    "nvml": nvml,
}


def main() -> None:
    """Do what the arguments say; the first of them is the process that must stay alive meanwhile."""
    parent, what, *rest = sys.argv[1:]
    leash.hold(int(parent))
    given: list[Any] = list(rest)
    COMMANDS[what](Gpu(), *given)


if __name__ == "__main__":
    main()
