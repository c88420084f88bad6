"""Seconds to publish 5,000 artifacts: Python wheels and Debian packages, half each.

Usage: python -m tests.bench.publish [FOLDER [ARTIFACTS]]; prints one line of JSON. The wheels and packages are small
and real, so that what is measured is the work for each artifact, not the disk's rate.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.contents.artifact import Artifact, DebianArtifact, PythonArtifact
from reservoir.intake.take import take
from reservoir.publication.prune import prune
from reservoir.publication.publish import publish
from tests.unit.reservoir.parts import STANZA, artifact, make_bundle, wheel

VERSIONS = 5


def packages(folder: Path, count: int) -> list[tuple[Artifact, Path]]:
    """Make `count` Debian packages with their stanzas, and as many wheels in several versions of each project."""
    made: list[tuple[Artifact, Path]] = []
    for number in range(count):
        name, version = f"demo_{number // VERSIONS}", f"1.{number % VERSIONS}"
        package = wheel(folder, name, version)
        deb = folder / f"{name.replace('_', '-')}_{version}_amd64.deb"
        deb.write_bytes(f"{name} {version}".encode() * 100)
        stanza = STANZA.format(name=name.replace("_", "-"), version=version)
        made.append((artifact(package, PythonArtifact, name, version), package))
        made.append((artifact(deb, DebianArtifact, name.replace("_", "-"), version, stanza=stanza), deb))
    return made


def seconds(root: Path) -> float:
    """Return how long it takes to publish what was imported."""
    start = time.perf_counter()
    publish(root)
    return time.perf_counter() - start


def main() -> None:
    """Publish for the first time, then again after a small bundle came, which is what an update does."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        work, key = Path(folder), Ed25519PrivateKey.generate()
        (work / "parts").mkdir()
        root = work / "site"
        take(make_bundle(work, key, name="large", made=packages(work / "parts", count // 2)), root, trust_first=True)
        first = seconds(root)
        take(make_bundle(work, key, name="small"), root, trust_first=True)
        again = seconds(root)
        start = time.perf_counter()
        removed = prune(root, keep=1)
        pruned = time.perf_counter() - start
    print(
        json.dumps(
            {
                "bench": "publish",
                "artifacts": count // 2 * 2,
                "cores": os.cpu_count(),
                "first_seconds": round(first, 2),
                "next_seconds": round(again, 2),
                "prune_seconds": round(pruned, 2),
                "pruned_bytes": removed.size,
            }
        )
    )


if __name__ == "__main__":
    main()
