"""Time to find the lines of one request in gathered journals, in the steps that the API takes.

Usage: python -m tests.bench.log_search [LINES]; prints one line of JSON; exits with 1 where a search takes a second.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from api.resources.logs import hash_table, search, senders
from api.resources.logs.search import Search
from api.resources.logs.senders import FILES
from tests import journals

LINES = 500_000
NODES = 200
"""Each has a store of its own, as on a master."""
A_REQUEST = 4
"""So many lines has each request."""
SEARCHES = 20
AIM_S = 1.0


def lines(count: int, node: int) -> Iterator[dict[str, str]]:
    """Yield those of so many lines that API and agents write on one of the nodes."""
    for number in range(node, count, NODES):
        request = name(number // A_REQUEST)
        yield {
            "MESSAGE": f"level=info event=ended request_id={request} session=web-{number} project=vision",
            "PRIORITY": "6",
            "SYSLOG_IDENTIFIER": "penstock-agent",
            "_HOSTNAME": f"worker{node}",
            "_SYSTEMD_UNIT": "penstock-agent.service",
            "_PID": "812",
            "PENSTOCK_REQUEST": request,
            "PENSTOCK_NODE": f"worker{node}",
            "PENSTOCK_SESSION": f"web-{number}",
        }


def name(number: int) -> str:
    """Return the id of a request."""
    return f"{random.Random(number).getrandbits(128):032x}"


def seconds(folder: Path, request: str, *, cold: bool) -> float:
    """Return how long a search takes; `cold` without what the kernel remembers of the files."""
    for path in folder.glob(FILES) if cold else ():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    known = senders.names(folder)
    wanted = Search(request=request)
    words = search.command(hash_table.patterns(folder, search.rare(wanted)), wanted, 200, None)
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = [entry for _, entry in search.entries(printed, known)]
    took = time.perf_counter() - start
    assert [entry and entry.request for entry in found] == [request] * A_REQUEST
    return took


def read_ahead(folder: Path) -> int:
    """Return how many KiB the disk below a folder reads ahead: a program that maps a file is given so much of it."""
    device = folder.stat().st_dev
    told = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(told.read_text()) if told.exists() else 0


def main() -> None:
    """Write journals and search them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        start = time.perf_counter()
        for node in range(NODES):
            (folder / f"worker{node}").mkdir()
            journals.write(folder / f"worker{node}" / "remote.journal", lines(count, node))
        written = time.perf_counter() - start
        files = list(folder.glob(FILES))
        size = sum(path.stat().st_size for path in files)
        wanted = [name(random.randrange(count // A_REQUEST)) for _ in range(SEARCHES)]
        cold = [seconds(folder, request, cold=True) for request in wanted]
        warm = [seconds(folder, request, cold=False) for request in wanted]
        told = {
            "bench": "log_search",
            "lines": count,
            "files": len(files),
            "gigabytes": round(size / 1e9, 2),
            "lines_written_per_s": round(count / written),
            "cold_median_s": round(statistics.median(cold), 3),
            "cold_worst_s": round(max(cold), 3),
            "warm_median_s": round(statistics.median(warm), 3),
            "read_ahead_kib": read_ahead(folder),
            "aim_s": AIM_S,
        }
    print(json.dumps(told))
    sys.exit(max(cold) > AIM_S)


if __name__ == "__main__":
    main()
