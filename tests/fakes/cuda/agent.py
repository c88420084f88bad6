"""The part of the agent that gives tenants back what they lost to each other, on the clock of the tenants.

Run as `python -m tests.fakes.cuda.agent UNTIL FOLDER...`: until that time, for tenants of these folders on one GPU.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from appliance.gpu.contention import Contention
from appliance.gpu.share_files import LimitsFile, read_log
from appliance.gpu.timetable import PLANS_PER_PERIOD

ROOT = Path(__file__).parents[3]


def start_agent(
    clock: Path, settings: Mapping[str, str], folders: Sequence[Path], until_ns: int
) -> subprocess.Popen[str]:
    """Start it; it ends by itself."""
    command = [sys.executable, "-m", __name__, str(until_ns), *map(str, folders)]
    return subprocess.Popen(command, cwd=ROOT, env={"LD_PRELOAD": str(clock), **settings}, text=True)


def main(until_ns: int, period_ns: int, folders: Sequence[Path]) -> None:
    """Look as often as the agent does."""
    contention = Contention()
    files = {str(folder): LimitsFile(folder / "limits") for folder in folders}
    uuids = {name: file.limits()[0].uuid for name, file in files.items()}
    while time.monotonic_ns() < until_ns:
        logs = {name: read_log(Path(name, "account"), 0) for name in files}
        for name, lost_ns in contention.look(time.monotonic_ns(), logs).items():
            files[name].settle(uuids[name], lost_ns)
        time.sleep(period_ns / PLANS_PER_PERIOD / 1e9)


if __name__ == "__main__":
    main(int(sys.argv[1]), 200_000_000, [Path(name) for name in sys.argv[2:]])
