"""The card that is judged, and the programs on it: each is a tenant with files of its own, and none outlives us."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pynvml

from appliance.gpu.activity import Activity
from appliance.gpu.contention import Contention
from appliance.gpu.layout import AccountHead, Limit, Total
from appliance.gpu.share_files import LimitsFile, create_account, read_account, read_log
from appliance.gpu.timetable import PLANS_PER_PERIOD, Sharer, boundary, is_active, plan
from common.gpu.kinds import Compute
from tests.gpu.remains import MARK

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
PERIOD_NS = 200_000_000
LOOK_S = 0.004
ANSWER_S = 60
"""The longest that a program may be silent when it was asked something."""


class ProgramError(RuntimeError):
    """A program that did not do what it was asked for."""


def leashed() -> list[str]:
    """Return what stands before a command of another program, so that it ends with us."""
    return [sys.executable, "-m", "tests.gpu.leash", str(os.getpid())]


class Program:
    """A program on the card; `ask` and `end` read its JSON lines."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def text(self) -> str:
        """Wait for its next line; raises ProgramError where it ends, or is silent for too long."""
        assert self.process.stdout
        timer = threading.Timer(ANSWER_S, self.kill)
        timer.start()
        try:
            text = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not text:
            raise ProgramError(self._complaint())
        return text

    def line(self) -> Any:
        """Return what its next line says; raises ProgramError where it ends, or is silent for too long."""
        return json.loads(self.text())

    def write(self, text: str) -> None:
        """Give it lines to read; where it has ended, its next line tells so."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.write(text)
            self.process.stdin.flush()

    def ask(self) -> Any:
        """Let it go one step further; returns what it says then."""
        self.write("\n")
        return self.line()

    def end(self) -> Any:
        """Return the one line that it says, and wait for its end."""
        found = self.line()
        self.kill()
        return found

    def kill(self) -> None:
        """End it, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _complaint(self) -> str:
        self.kill()
        said = self.process.stderr.read().strip().splitlines() if self.process.stderr else []
        return f"a program ended with {self.process.returncode}: {said[-1] if said else 'it said nothing'}"


@dataclass
class Tenant:
    """A share of the card: limits and account as a container would have them, and the environment of its programs."""

    card: Card
    folder: Path
    limit: Limit

    def __post_init__(self) -> None:
        self.file = LimitsFile.create(self.folder / "limits", [self.limit])
        create_account(self.folder / "account", 1)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its programs."""
        paths = {
            "PENSTOCK_TEST_LIMITS": str(self.folder / "limits"),
            "PENSTOCK_TEST_ACCOUNT": str(self.folder / "account"),
        }
        return {**self.card.bare, "LD_PRELOAD": str(self.card.library), **paths}

    def change(self, memory: int, milli: int) -> None:
        """Give it other limits while it runs."""
        self.limit = Limit(self.limit.uuid, memory, milli, self.limit.compute)
        self.file.change([self.limit])

    @property
    def total(self) -> Total:
        """What its account says."""
        found = read_account(self.folder / "account")
        return found[0] if found else Total()

    @property
    def log(self) -> bytes:
        """When its processes had work."""
        return read_log(self.folder / "account", 0)

    @property
    def context_bytes(self) -> int:
        """What its account says of a context of its own; 0 where it has measured none."""
        data = (self.folder / "account").read_bytes()[: ctypes.sizeof(AccountHead)]
        return int(AccountHead.from_buffer_copy(data).gpu[0].context)


@dataclass
class Card:
    """The first card, the library, a folder of ours, and whether all is done for a short time only."""

    handle: Any
    uuid: str
    library: Path
    release: Path
    folder: Path
    quick: bool = False
    running: list[Program] = field(default_factory=list)
    _made: int = 0

    @property
    def bare(self) -> dict[str, str]:
        """The environment of a program that has this card alone and no library."""
        path = f"{ROOT}:{os.environ['PYTHONPATH']}" if os.environ.get("PYTHONPATH") else str(ROOT)
        return {**os.environ, "CUDA_VISIBLE_DEVICES": self.uuid, "PYTHONPATH": path, MARK: str(self.folder)}

    @property
    def is_cut(self) -> bool | None:
        """Whether MIG is on, so that nobody can use the card but by its slices; None where it has no MIG."""
        try:
            current, _ = pynvml.nvmlDeviceGetMigMode(self.handle)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            return None
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)

    def tenant(self, memory: int = 0, milli: int = 1000, compute: Compute = Compute.OFF) -> Tenant:
        """Make a tenant; memory in bytes, 0 for no limit."""
        self._made += 1
        return Tenant(self, self.folder / f"tenant-{self._made}", Limit(self.uuid, memory, milli, compute))

    def start(self, environment: dict[str, str], *arguments: str, module: str = "tests.gpu.program") -> Program:
        """Start one of our programs; `end_programs` ends it at the latest."""
        return self.hold(Program([sys.executable, "-m", module, str(os.getpid()), *arguments], environment))

    def run(self, environment: dict[str, str], *arguments: str, module: str = "tests.gpu.program") -> Any:
        """Run one of our programs; returns what it says."""
        return self.start(environment, *arguments, module=module).end()

    def hold(self, program: Program) -> Program:
        """Let `end_programs` end a program, too."""
        self.running.append(program)
        return program

    def end_programs(self) -> None:
        """End all programs that run."""
        for program in self.running:
            program.kill()
        self.running.clear()

    def used(self) -> int:
        """Bytes in use on the card, whoever uses them."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Watch the memory in use, above what was in use before: the list holds the most of it at the end."""
        before, most, over = self.used(), [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                most[0] = max(most[0], self.used() - before)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield most
        finally:
            over.set()
            thread.join()


class Planner:
    """What the agent does for tenants that share a card: their timetable, another when who is active changes, and what
    they lost to each other back.
    """

    def __init__(self, tenants: Sequence[Tenant], mode: Compute) -> None:
        self._tenants, self._mode = tenants, mode
        self._known: list[tuple[str, int, bool]] = []
        self._contention = Contention()
        self._activity = Activity()

    def plan(self) -> None:
        """Plan once; nothing is written where nothing has changed."""
        now = time.monotonic_ns()
        self._settle()
        sharers = [
            Sharer(str(number), tenant.limit.milli, is_active(tenant.total.wanted_ns, now, PERIOD_NS))
            for number, tenant in enumerate(self._tenants)
        ]
        working = self._activity.look(sharers)
        sharers = [replace(each, active=each.container in working) for each in sharers]
        known = [(each.container, each.milli, each.active or self._mode is Compute.STRICT) for each in sharers]
        if known == self._known:
            return
        self._known = known
        windows = plan(sharers, self._mode, PERIOD_NS, boundary(now, PERIOD_NS, PERIOD_NS // 10))
        for number, tenant in enumerate(self._tenants):
            tenant.file.schedule({tenant.limit.uuid: windows[str(number)]}, now)

    def _settle(self) -> None:
        logs = {str(number): tenant.log for number, tenant in enumerate(self._tenants)}
        for number, lost_ns in self._contention.look(time.monotonic_ns(), logs).items():
            tenant = self._tenants[int(number)]
            tenant.file.settle(tenant.limit.uuid, lost_ns)

    def watch(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        """Plan for so long, and look at something often."""
        begun = time.monotonic()
        planned = 0.0
        while (now := time.monotonic()) < begun + seconds:
            if now > planned + PERIOD_NS / PLANS_PER_PERIOD / 1e9:
                self.plan()
                planned = now
            look()
            time.sleep(LOOK_S)
