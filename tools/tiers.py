"""Tiers of tests: `tools/tiers.py GROUP...` makes each and ends with how long it and its tests took.

A tier is a target of the Makefile that leaves pytest's report, if it has one, in `build/tiers/<tier>.xml`. A group is
one tier, or several with commas between them, which run side by side; those with a plus between them run one after
another there. A row that begins with `~` gives way: it takes what others leave, such as the waits of the lab, and the
next groups do not wait for it. What fails ends the run behind its group; the table comes all the same, and behind it,
as the last that a run says, what failed and why.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "build" / "tiers"
SLOWEST = 10
TOLD = 10
"""Failed tests that are told of a tier, and lines of one that failed without a test."""
WIDTH = 200
"""Characters that are told of why a test failed."""
GIVES_WAY = "~"
NICE = 10
"""Beside one who wants a core all the time, who gives way has a tenth of it."""
APART = ("setpriv", "--pdeathsig=TERM", "env", "--default-signal=INT", "nice", "-n", str(NICE))
"""Before the command of what gives way: it does not outlive a run that was killed, and hears that it is to end also
where the run is in the background, whose processes ignore Ctrl-C."""
PATIENCE = {"PYTEST_TIMEOUT": "1200"}
"""Environment of tests that give way: a test may take ten times as long."""


@dataclass(frozen=True)
class Tier:
    """How a tier went: its seconds, whether it passed, the seconds of each test by its name, and why tests failed.

    `said` are its last lines, where this process saw them, and `busy` is the part of the machine's cores, from 0 to 1,
    that was in use meanwhile, by whomever.
    """

    name: str
    seconds: float
    passed: bool
    tests: dict[str, float]
    failures: dict[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    busy: float = 0.0


def main(groups: Sequence[str]) -> int:
    """Make the tiers, print the table and return the exit code."""
    begin = time.monotonic()
    tiers = Run.of(groups).make()
    print("\n\033[1m== Time of each tier, and its slowest tests\033[0m")
    for line in table(tiers, time.monotonic() - begin):
        print(line)
    for line in reasons(tiers):
        print(line)
    return 0 if all(tier.passed for tier in tiers) else 1


@dataclass(frozen=True)
class Row:
    """Tiers that run one after another, and whether they give way."""

    names: tuple[str, ...]
    gives_way: bool

    @classmethod
    def of(cls, words: str) -> Row:
        """Return the row that these words mean."""
        return cls(tuple(words.removeprefix(GIVES_WAY).split("+")), words.startswith(GIVES_WAY))


@dataclass
class Run:
    """Groups of rows, and what came of their tiers, in the order in which they ended.

    With a `width`, each line that they say is behind a name in so many characters.
    """

    groups: Sequence[Sequence[Row]]
    width: int
    made: list[Tier] = field(default_factory=list)
    ended: bool = False
    apart: list[subprocess.Popen[str]] = field(default_factory=list)
    """What gives way: it is in a session of its own."""

    @classmethod
    def of(cls, groups: Sequence[str]) -> Run:
        """Return the run of groups as they are written; the lines of a single tier need no name."""
        rows = [[Row.of(words) for words in group.split(",")] for group in groups]
        names = [name for group in rows for row in group for name in row.names]
        return cls(rows, max(map(len, names)) if len(names) > 1 else 0)

    def make(self) -> list[Tier]:
        """Make one group after another while all is well, and wait for what gives way."""
        with ThreadPoolExecutor(sum(map(len, self.groups))) as pool:
            try:
                made: list[Future[None]] = []
                for group in self.groups:
                    begun = {row: pool.submit(self.make_row, row) for row in group}
                    made += begun.values()
                    for row, each in begun.items():
                        if not row.gives_way:
                            each.result()
                    if not all(tier.passed for tier in self.made):
                        self.ended = True
                        break
                for each in made:
                    each.result()
            except KeyboardInterrupt:
                self.end()
                raise
        return self.made

    def make_row(self, row: Row) -> None:
        """Make tiers one after another, whatever comes of each, while the run goes on."""
        for name in row.names:
            if not self.ended:
                self.made.append(self._make(name, row.gives_way))

    def _make(self, name: str, gives_way: bool) -> Tier:
        report = REPORTS / f"{name}.xml"
        report.unlink(missing_ok=True)
        said: deque[str] = deque(maxlen=TOLD)
        begin, cores = time.monotonic(), Cores.now()
        with start(name, piped=self.width > 0, gives_way=gives_way) as process:
            if gives_way:
                self.apart.append(process)
            for line in process.stdout or ():
                print(f"{name:{self.width}} | {line}", end="", flush=True)
                said.append(line.rstrip())
        seconds = time.monotonic() - begin
        tests, failures = read(report)
        busy = cores.busy_until(Cores.now())
        return Tier(name, seconds, process.returncode == 0, tests, failures, tuple(said), busy)

    def end(self) -> None:
        """End what a Ctrl-C does not reach, which a terminal tells its own session alone, and begin nothing more."""
        self.ended = True
        for process in self.apart:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)


@dataclass(frozen=True)
class Cores:
    """What the cores of the machine have done since it started, in ticks."""

    idle: int
    together: int

    @classmethod
    def now(cls) -> Cores:
        """Read it from the kernel: user, nice, system, idle and iowait come first, guests are counted in the former."""
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return cls(sum(ticks[3:5]), sum(ticks))

    def busy_until(self, later: Cores) -> float:
        """Return the part of the cores that was in use until then."""
        return 1 - (later.idle - self.idle) / max(1, later.together - self.together)


def start(name: str, *, piped: bool, gives_way: bool) -> subprocess.Popen[str]:
    """Start the make of a tier; one that gives way has a session of its own.

    The kernel shares cores out between sessions, and between these and containers, before it looks how nice a process
    is: only a session as a whole gives way to a lab (sched(7), autogroups).
    """
    command = ["make", "--no-print-directory", name]
    out, errors = (subprocess.PIPE, subprocess.STDOUT) if piped else (None, None)
    process = subprocess.Popen(
        [*APART, *command] if gives_way else command,
        cwd=ROOT,
        text=True,
        errors="replace",
        stdout=out,
        stderr=errors,
        start_new_session=gives_way,
        env={**os.environ, **PATIENCE} if gives_way else None,
    )
    if gives_way:
        # it may have ended, and not every kernel has it
        with suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(NICE))
    return process


def read(report: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Return the seconds of each test, with those of its fixtures, and why those failed that did, from JUnit's form.

    Where pytest wrote none, or was killed while it did, nothing is known of them.
    """
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    try:
        cases = [*ET.parse(report).iter("testcase")]
    except (FileNotFoundError, ET.ParseError):
        cases = []
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        seconds[name] = float(case.get("time", 0))
        for found in (*case.iter("failure"), *case.iter("error")):
            failures[name] = " ".join((found.get("message") or found.text or "").split())
    return seconds, failures


def table(tiers: Sequence[Tier], together: float) -> Iterator[str]:
    """Yield the lines of the table; `together` are the seconds of the whole run."""
    for tier in tiers:
        tests = f"{len(tier.tests):6} tests" if tier.tests else 12 * " "
        failed = "" if tier.passed else ": failed"
        yield f"{tier.seconds:8.1f} s  {tests}  {tier.name}{failed}, with {tier.busy:.0%} of all cores in use"
        slowest = sorted(tier.tests.items(), key=lambda test: -test[1])[:SLOWEST]
        for name, seconds in slowest:
            yield f"{seconds:18.1f} s    {name}"
    yield f"{together:8.1f} s  {12 * ' '}  together"


def reasons(tiers: Sequence[Tier]) -> Iterator[str]:
    """Yield what failed and why, in few lines: whoever keeps only the end of a log has it."""
    for tier in tiers:
        if tier.passed:
            continue
        yield f"{tier.name} failed: {len(tier.failures)} of {len(tier.tests)} tests"
        for name, why in list(tier.failures.items())[:TOLD]:
            yield f"  {name}: {why[:WIDTH]}"
        if not tier.failures:
            yield from (f"  {line}" for line in tier.said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
