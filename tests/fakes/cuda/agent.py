"""The part of the agent that gives tenants back what they lost to each other, on the clock of the tenants.

Run as `python -m tests.fakes.cuda.agent UNTIL MODE FOLDER...`: until that time, for tenants of these folders.
They share one GPU. In `fair` mode the agent's own arbiter plans for them as well.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from appliance.gpu.contention import Contention
from appliance.gpu.devices import DeviceShare
from appliance.gpu.layout import Total
from appliance.gpu.share_files import LimitsFile, read_account, read_log
from appliance.gpu.timetable import PLANS_PER_PERIOD
from common.gpu.kinds import Compute
from common.protocol import GpuDevice

ROOT = Path(__file__).parents[3]
PERIOD_MS = 200


def start_agent(
    clock: Path, settings: Mapping[str, str], folders: Sequence[Path], until_ns: int, mode: Compute = Compute.STRICT
) -> subprocess.Popen[str]:
    """Start it; it ends by itself."""
    command = [sys.executable, "-m", __name__, str(until_ns), mode.value, *map(str, folders)]
    return subprocess.Popen(command, cwd=ROOT, env={"LD_PRELOAD": str(clock), **settings}, text=True)


@dataclass
class Tenants:
    """Tenants of one GPU, by their folders, as the arbiter sees shares and files of containers."""

    folders: Sequence[Path]
    files: dict[str, LimitsFile] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {str(folder): LimitsFile(folder / "limits") for folder in self.folders}

    @property
    def holdings(self) -> Sequence[str]:
        """All of them."""
        return list(self.files)

    def shares_of(self, container: str) -> list[DeviceShare]:
        """What stands in its limits."""
        (limit,) = self.files[container].limits()
        return [DeviceShare(GpuDevice(index=0, uuid=limit.uuid, model="", memory_mib=1), limit.milli)]

    def has(self, container: str) -> bool:
        """The library is in all of them."""
        return container in self.files

    def limits(self, container: str) -> LimitsFile:
        """The limits file of a tenant."""
        return self.files[container]

    def totals(self, container: str) -> dict[str, Total]:
        """What a tenant does with the GPU."""
        return {self.files[container].limits()[0].uuid: read_account(Path(container, "account"))[0]}

    def log(self, container: str, _: str) -> bytes:
        """When processes of a tenant last had work."""
        return read_log(Path(container, "account"), 0)

    def settle(self, container: str, uuid: str, lost_ns: int) -> None:
        """Give a tenant back what it lost."""
        self.files[container].settle(uuid, lost_ns)


def settle(tenants: Tenants, until_ns: int) -> None:
    """Settle as often as the agent does."""
    contention = Contention()
    while time.monotonic_ns() < until_ns:
        logs = {name: tenants.log(name, "") for name in tenants.files}
        for name, lost_ns in contention.look(time.monotonic_ns(), logs).items():
            tenants.settle(name, tenants.files[name].limits()[0].uuid, lost_ns)
        time.sleep(PERIOD_MS / PLANS_PER_PERIOD / 1e3)


def plan(tenants: Tenants, mode: Compute, until_ns: int) -> None:
    """Plan and settle as often as the agent does."""
    # it takes most of a second to load, which only tests of plans spend
    from appliance.agent.shares.arbiter import Arbiter

    arbiter = Arbiter(cast("Any", tenants), cast("Any", tenants), mode, PERIOD_MS)
    while time.monotonic_ns() < until_ns:
        arbiter.plan_once()
        time.sleep(PERIOD_MS / PLANS_PER_PERIOD / 1e3)


if __name__ == "__main__":
    wanted, found = Compute(sys.argv[2]), Tenants([Path(name) for name in sys.argv[3:]])
    if wanted is Compute.STRICT:
        settle(found, int(sys.argv[1]))
    else:
        plan(found, wanted, int(sys.argv[1]))
