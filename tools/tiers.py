"""Tiers of tests, one after another: `tools/tiers.py TIER...` makes each and ends with how long it and its tests took.

A tier is a target of the Makefile that leaves pytest's report, if it has one, in `build/tiers/<tier>.xml`. What fails
ends the run; the table comes all the same.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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


def main(names: Sequence[str]) -> int:
    """Make the tiers, print the table and return the exit code."""
    tiers: list[Tier] = []
    for name in names:
        tiers.append(run(name))
        if not tiers[-1].passed:
            break
    print("\n\033[1m== Time of each tier, and its slowest tests\033[0m")
    for line in table(tiers):
        print(line)
    return 0 if tiers[-1].passed else 1


def run(name: str) -> Tier:
    """Make a tier."""
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    done = subprocess.run(["make", "--no-print-directory", name], cwd=ROOT, check=False)
    seconds = time.monotonic() - begin
    return Tier(name, seconds, done.returncode == 0, read(report) if report.is_file() else {})


def read(report: Path) -> dict[str, float]:
    """Return the seconds of each test, with those of its fixtures, from a report in JUnit's form."""
    cases = ET.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0)) for case in cases}


def table(tiers: Sequence[Tier]) -> Iterator[str]:
    """Yield the lines of the table."""
    for tier in tiers:
        tests = f"{len(tier.tests):6} tests" if tier.tests else 12 * " "
        yield f"{tier.seconds:8.1f} s  {tests}  {tier.name}{'' if tier.passed else ': failed'}"
        slowest = sorted(tier.tests.items(), key=lambda test: -test[1])[:SLOWEST]
        for name, seconds in slowest:
            yield f"{seconds:18.1f} s    {name}"
    yield f"{sum(tier.seconds for tier in tiers):8.1f} s  {12 * ' '}  together"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
