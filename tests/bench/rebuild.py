"""What a build of the product's bundle costs: a second one without changes, and the disk that the first one takes.

Usage: python -m tests.bench.rebuild; prints one line of JSON. The second build runs in a network name space of its own
without any device, so that it can fetch nothing. The first one runs on a disk of its own in memory, from the packages
that the project's cache holds; `scratch_x_bundle` is the most that the disk held at once beside the bundle, as a
multiple of the bundle.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reservoir.download.cache import link_or_copy
from reservoir.lock.file import read_lock

ROOT = Path(__file__).parents[2]
PENSTOCK = Path(sys.executable).with_name("penstock")
CACHE = Path(os.environ.get("PENSTOCK_CACHE", ROOT / "build/cache"))
DISK = "8g"


def build(cache: Path, out: Path, key: Path, *before: str) -> tuple[dict[str, Any], float]:
    """Build the product's bundle; return the answer and the seconds it took."""
    environment = os.environ | {"PENSTOCK_CACHE": str(cache), "PENSTOCK_SIGNING_KEY": str(key)}
    command: list[str | Path] = [
        *before,
        PENSTOCK,
        "reservoir",
        "build",
        ROOT / "manifest.yml",
        "--output",
        out,
        "--json",
    ]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout), time.perf_counter() - start


@contextmanager
def disk() -> Iterator[Path]:
    """A disk of its own in memory."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@contextmanager
def most_used(folder: Path) -> Iterator[list[int]]:
    """Watch a disk; the list's one number becomes the most bytes that it held at once."""
    most = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], shutil.disk_usage(folder).used)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def first_build() -> dict[str, Any]:
    """Build with nothing but packages in the cache."""
    with disk() as folder:
        (folder / "cache/blobs").mkdir(parents=True)
        for artifact in read_lock(ROOT / "reservoir.lock").artifacts:
            link_or_copy(CACHE / "blobs" / artifact.sha256, folder / "cache/blobs" / artifact.sha256)
        with most_used(folder) as most:
            built, seconds = build(folder / "cache", folder / "out", folder / "signing.key")
        size = sum(path.stat().st_size for path in Path(built["bundle"]).rglob("*") if path.is_file())
    scratch = (most[0] - size) / size
    return {"first_build_s": round(seconds, 1), "bundle_bytes": size, "scratch_x_bundle": round(scratch, 2)}


def second_build() -> dict[str, Any]:
    """Build twice, the second time where nothing can be fetched."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as scratch:
        folder = Path(scratch)
        build(CACHE, folder / "out", folder / "signing.key")
        built, seconds = build(CACHE, folder / "out", folder / "signing.key", "unshare", "--net")
    if built["changed"]:
        sys.exit("the second build made another bundle")
    return {"rebuild_s": round(seconds, 2), "bytes_fetched": 0, "changed": False}


if __name__ == "__main__":
    environment = os.environ | {"PENSTOCK_CACHE": str(CACHE)}
    subprocess.run(
        [PENSTOCK, "reservoir", "lock", "--if-changed", ROOT / "manifest.yml"],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    print(json.dumps(second_build() | first_build()))
