"""Rate and memory of `penstock reservoir verify` beside the plain rate of reading and hashing the same files.

Usage: python -m tests.bench.verify BUNDLE [RUNS]; prints one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

MEASURE = """
import json, resource, sys, time
from pathlib import Path
from reservoir.bundle.verification import verify
start = time.perf_counter()
verify(Path(sys.argv[1]))
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def plain(paths: list[Path]) -> float:
    """Return the seconds that hashlib takes to read and hash the files, one after the other."""
    start = time.perf_counter()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
    return time.perf_counter() - start


def measured(bundle: Path) -> tuple[float, float]:
    """Return the seconds of a verification in a process of its own, and its peak of resident memory in MiB."""
    out = subprocess.run([sys.executable, "-c", MEASURE, bundle], capture_output=True, text=True, check=True).stdout
    seconds, memory = json.loads(out)
    return float(seconds), float(memory)


def main() -> None:
    """Measure in turn, so that both see the same machine; the first round only warms the page cache."""
    bundle = Path(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    paths = [path for path in bundle.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    plain(paths)
    rounds = [(plain(paths), *measured(bundle)) for _ in range(runs)]
    hashed = statistics.median(seconds for seconds, _, _ in rounds)
    verified = statistics.median(seconds for _, seconds, _ in rounds)
    print(
        json.dumps(
            {
                "bench": "verify",
                "megabytes": round(megabytes),
                "files": len(paths),
                "cores": os.cpu_count(),
                "runs": runs,
                "hashlib_mb_per_s": round(megabytes / hashed),
                "verify_mb_per_s": round(megabytes / verified),
                "percent_of_hashlib": round(100 * hashed / verified),
                "peak_memory_mib": round(max(memory for _, _, memory in rounds)),
            }
        )
    )


if __name__ == "__main__":
    main()
