"""Records of the deploys of a controller: what each installed and on which nodes, and which of them stay.

The last that was `ok` says what a site is, and the last that went to a node what stands there: these always stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from appliance.site.model import Site
from common import files

FOLDER = "deploys"
RECORDS_KEPT, RENEWALS_KEPT = 50, 10
OF_NODES = ("reached", "nodes", "left_out")
"""The parts of a record that say something of nodes, by their names."""

Record = Mapping[str, Any]


def read(state: Path) -> list[dict[str, Any]]:
    """Return the records of the deploys of a controller, the latest first."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in _paths(state)]


def keep(plain: Record, state: Path) -> None:
    """Keep what came of a deploy, and remove old records that nobody needs any more."""
    folder = state / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.json"
    files.write(path, json.dumps(plain, indent=1) + "\n", 0o600)
    for old, needed in zip(_paths(state), _needed(read(state)), strict=True):
        if not needed:
            old.unlink()


def installs(file: str, bundles: Iterable[str], authority: Path) -> dict[str, Any]:
    """Return what a deploy installs: site file, bundles that are served, program, and the site's authority.

    `file` is the text of the site file, and `authority` the certificate of the authority.
    """
    return {
        "site file": hashlib.sha256(file.encode()).hexdigest(),
        "bundles": sorted(bundles),
        "program": version("penstock"),
        "authority": hashlib.sha256(authority.read_bytes()).hexdigest() if authority.is_file() else "",
    }


def last_by_node(deploys: Sequence[Record]) -> dict[str, Record]:
    """Return the last deploy that was to go to each node, by names. `deploys` are records, latest first.

    One that left a node out counts, for it may have been interrupted there.
    """
    found: dict[str, Record] = {}
    for record in deploys:
        for name in {name for part in OF_NODES for name in record.get(part, ())}:
            found.setdefault(name, record)
    return found


def behind(site: Site, deploys: Sequence[Record]) -> dict[str, str]:
    """Return the nodes that the last deploy which went there left out, and why. `deploys` are records, latest first."""
    found: dict[str, str] = {}
    for node in site.nodes:
        for record in deploys:
            if node.name in record.get("reached", ()):
                break
            if problems := record.get("left_out", {}).get(node.name):
                reasons = "; ".join(problem["reason"] for problem in problems)
                found[node.name] = f"left out of the deploy of {record['started']}: {reasons}"
                break
    return found


def _paths(state: Path) -> list[Path]:
    return sorted((state / FOLDER).glob("*.json"), reverse=True)


def _needed(deploys: Sequence[Record]) -> list[bool]:
    """Say of each record whether it stays: the latest do, and the last that was `ok` or says something of a node."""
    counts, seen, needed = {True: 0, False: 0}, set[tuple[str, str]](), list[bool]()
    for record in deploys:
        renewal = record.get("renewal", False)
        counts[renewal] += 1
        says = {(part, name) for part in OF_NODES for name in record.get(part, ())}
        says |= {("ok", "")} if record["ok"] else set()
        needed.append(counts[renewal] <= (RENEWALS_KEPT if renewal else RECORDS_KEPT) or not says <= seen)
        seen |= says
    return needed
