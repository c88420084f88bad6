"""How long the security checker takes, and how much memory: 50,000 advisories against 5,000 packages."""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from reservoir.scan.checker import scan
from reservoir.scan.facts import Facts
from reservoir.scan.policy import ScanPolicy
from tests.unit.reservoir.scan.advisories import HIGH, advisory, bundle, cvss, deb, package

ADVISORIES = 50_000
PACKAGES = 5_000
# every tenth advisory speaks of a package that is there, as in a real database
KNOWN = 10
WORDS = "a sentence about what may happen and who found it "


def packages() -> Bundle:
    """Half wheels, half Debian packages."""
    made: list[Artifact] = []
    for number in range(PACKAGES // 2):
        made.append(package("python", f"python-{number}", f"1.{number % 30}.{number % 7}"))
        made.append(deb(f"libdebian{number}", f"2:1.{number % 30}-{number % 5}+deb12u1", source=f"debian-{number}"))
    return bundle(*made)


def archive(path: Path, dice: random.Random) -> None:
    """Write advisories as OSV exports them: one archive, one file each, with text and a list of versions."""
    now = datetime.now(UTC).isoformat()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for number in range(ADVISORIES):
            of = dice.randrange(PACKAGES // 2) + (0 if number % KNOWN == 0 else PACKAGES)
            debian = number % 2 == 0
            entry = advisory(
                f"BENCH-{number}",
                "Debian:12" if debian else "PyPI",
                f"{'debian' if debian else 'python'}-{of}",
                {"introduced": "0"},
                {"fixed": f"{'2:' if debian else ''}1.{dice.randrange(30)}{'-1' if debian else ''}"},
                versions=() if debian else tuple(f"1.{minor}.{patch}" for minor in range(10) for patch in range(5)),
                modified=now,
                aliases=[f"CVE-2026-{number}"],
                severity=cvss(HIGH),
                details=WORDS * dice.randrange(1, 60),
            )
            file.writestr(f"{entry['id']}.json", json.dumps(entry))


def main() -> None:
    """Print one JSON line: seconds, peak of memory in MB, and what was found."""
    wanted = packages()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.zip"
        archive(path, random.Random(1))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        report = scan(wanted, Facts(), [path], ScanPolicy(), now=datetime.now(UTC))
        seconds = time.perf_counter() - start
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {
        "bench": "scan",
        "advisories": ADVISORIES,
        "packages": PACKAGES,
        "archive_mb": round(size / 1e6, 1),
        "findings": len(report.findings),
        "seconds": round(seconds, 2),
        "peak_mb": round(peak / 1024),
        "added_mb": round((peak - before) / 1024),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
