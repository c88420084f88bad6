"""Numbers of advisories at earlier scans: an export that was cut off does not pass for a whole one."""

from __future__ import annotations

import json
from pathlib import Path

from common import files
from reservoir.scan.policy import ScanPolicy
from reservoir.scan.report import Report

NAME = "advisories.json"


def read(path: Path) -> dict[str, int]:
    """Return the number of advisories of each ecosystem; nothing where none is remembered in that file."""
    try:
        known = json.loads(path.read_bytes())
        return {str(name): int(count) for name, count in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep(path: Path, report: Report, policy: ScanPolicy) -> None:
    """Remember the most that there ever were; where a policy says how many there must be, what there is now."""
    known = read(path)
    now = {entry.ecosystem: entry.advisories for entry in report.checked}
    most = {
        name: count if policy.least_of(name) is not None else max(count, known.get(name, 0))
        for name, count in now.items()
    }
    files.write(path, json.dumps(known | most, indent=1, sort_keys=True).encode() + b"\n")
