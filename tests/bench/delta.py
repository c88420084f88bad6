"""Bytes that a delta ships when one wheel of the product's bundle changed, beside that wheel and the metadata.

Usage: python -m tests.bench.delta; prints one line of JSON. It builds in a folder of its own and shares the cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PENSTOCK = Path(sys.executable).with_name("penstock")
PARTS = ("common", "reservoir", "appliance", "api", "roles", "playbooks", "inventory")
FILES = ("manifest.yml", "pyproject.toml", "ansible.cfg", "README.md", "LICENSE")


def penstock(folder: Path, *words: str | Path) -> dict[str, Any]:
    """Run `penstock reservoir` with a signing key of its own; return its answer."""
    environment = os.environ | {
        "PENSTOCK_SIGNING_KEY": str(folder / "signing.key"),
        "PENSTOCK_CACHE": os.environ.get("PENSTOCK_CACHE", str(ROOT / "build/cache")),
    }
    command = [PENSTOCK, "reservoir", *words]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(out) if out else {}


def copy_project(folder: Path) -> None:
    """Copy what the product's wheel and bundle are made from."""
    for name in PARTS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copyfile(ROOT / name, folder / name)


def change_version(project: Path) -> None:
    """Give the product's own wheel another version, and nothing else."""
    path = project / "pyproject.toml"
    text, changes = re.subn(r'^version = ".*"$', 'version = "99.0"', path.read_text(), flags=re.MULTILINE)
    if changes != 1:
        sys.exit("pyproject.toml has no version to change")
    path.write_text(text)


def measure(scratch: Path) -> dict[str, Any]:
    """Import today's bundle at a site, then build the changed one for the site's receipt."""
    project, receipt, site = scratch / "project", scratch / "receipt.json", scratch / "site"
    copy_project(project)
    if (ROOT / "reservoir.lock").exists():
        shutil.copyfile(ROOT / "reservoir.lock", project / "reservoir.lock")
    manifest = project / "manifest.yml"
    penstock(scratch, "lock", "--if-changed", manifest, "--json")
    held = penstock(scratch, "build", manifest, "-o", scratch / "held", "--json")
    penstock(scratch, "import", "--trust-first", held["bundle"], "--root", site, "--json")
    penstock(scratch, "receipt", "--root", site, "--output", receipt)
    fingerprint = sha256(bytes.fromhex(json.loads(receipt.read_bytes())["receipt"]["site"])).hexdigest()
    change_version(project)
    known: list[str | Path] = ["--since", receipt, "--trust-site", fingerprint]
    made = penstock(scratch, "build", manifest, *known, "-o", scratch / "next", "--json")
    penstock(scratch, "import", "--trust-first", made["bundle"], "--root", site, "--json")
    folder = Path(made["bundle"])
    (wheel,) = (folder / "blobs/sha256").iterdir()
    shipped = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "bench": "delta",
        "full_bytes": held["bytes"],
        "blobs": held["blobs"],
        "shipped_bytes": shipped,
        "wheel_bytes": wheel.stat().st_size,
        "metadata_bytes": shipped - wheel.stat().st_size,
    }


def main() -> None:
    """Measure in a folder that goes away at the end, on the disk of the cache, so that blobs are linked."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        print(json.dumps(measure(Path(name))))


if __name__ == "__main__":
    main()
