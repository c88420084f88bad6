"""Tiers of tests: `tools/tiers.py GROUP...` makes each and ends with how long it and its tests took.

A tier is a target of the Makefile that leaves pytest's report, if it has one, in `build/tiers/<tier>.xml`. A group is
one tier, or several with commas between them, which run side by side; those with a plus between them run one after
another there. What fails ends the run behind its group; the table comes all the same.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "build" / "tiers"
SLOWEST = 10


@dataclass(frozen=True)
class Tier:
    """How a tier went: its seconds, whether it passed, and the seconds of each test by its name."""

    name: str
    seconds: float
    passed: bool
    tests: dict[str, float]


def main(groups: Sequence[str]) -> int:
    """Make the tiers, print the table and return the exit code."""
    begin = time.monotonic()
    tiers: list[Tier] = []
    for group in groups:
        tiers += run(group.split(","))
        if not all(tier.passed for tier in tiers):
            break
    print("\n\033[1m== Time of each tier, and its slowest tests\033[0m")
    for line in table(tiers, time.monotonic() - begin):
        print(line)
    return 0 if all(tier.passed for tier in tiers) else 1


def run(rows: Sequence[str]) -> list[Tier]:
    """Make rows of tiers side by side; each line that one of several tiers says begins with its name."""
    split = [row.split("+") for row in rows]
    names = [name for row in split for name in row]
    width = max(map(len, names)) if len(names) > 1 else 0
    with ThreadPoolExecutor(len(split)) as pool:
        return [tier for made in pool.map(lambda row: [make(name, width) for name in row], split) for tier in made]


def make(name: str, width: int) -> Tier:
    """Make a tier; with a width, what it says goes on as it comes, behind its name in so many characters."""
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    command = ["make", "--no-print-directory", name]
    out, errors = (subprocess.PIPE, subprocess.STDOUT) if width else (None, None)
    with subprocess.Popen(command, cwd=ROOT, text=True, errors="replace", stdout=out, stderr=errors) as process:
        for line in process.stdout or ():
            print(f"{name:{width}} | {line}", end="", flush=True)
    seconds = time.monotonic() - begin
    return Tier(name, seconds, process.returncode == 0, read(report) if report.is_file() else {})


def read(report: Path) -> dict[str, float]:
    """Return the seconds of each test, with those of its fixtures, from a report in JUnit's form."""
    cases = ET.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0)) for case in cases}


def table(tiers: Sequence[Tier], together: float) -> Iterator[str]:
    """Yield the lines of the table; `together` are the seconds of the whole run."""
    for tier in tiers:
        tests = f"{len(tier.tests):6} tests" if tier.tests else 12 * " "
        yield f"{tier.seconds:8.1f} s  {tests}  {tier.name}{'' if tier.passed else ': failed'}"
        slowest = sorted(tier.tests.items(), key=lambda test: -test[1])[:SLOWEST]
        for name, seconds in slowest:
            yield f"{seconds:18.1f} s    {name}"
    yield f"{together:8.1f} s  {12 * ' '}  together"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
