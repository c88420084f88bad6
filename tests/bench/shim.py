"""The shim on the fake driver: cost of a hooked launch and allocation, 300 starts, shares kept. JSON lines."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from appliance.gpu.timetable import Window
from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import GIB, Bench, Tenant, build_clock, crowd, gpu_uuid
from tests.fakes.cuda.sharing import PERIOD_NS, shares

ROUNDS = 9
LAUNCHES = 200_000
ALLOCATIONS = 20_000
STARTS = 300
WORK = ("busy_500us 1 0", "busy_3ms 10 0", "busy_20ms 4 0")


def cost(bench: Bench, folder: Path, compute: Compute) -> dict[str, object]:
    """Nanoseconds of a launch, and of an allocation with its release, that the shim adds to the bare driver.

    Where compute is shared, the tenant's window is the whole period, so that no launch has to wait.
    """
    hooked = Tenant(bench, folder / f"hooked-{compute}", [GIB], compute=compute)
    hooked.file.schedule({gpu_uuid(0): Window(1, 0, PERIOD_NS, 0, PERIOD_NS)}, 1)
    bare = Tenant(bench, folder / f"bare-{compute}", [GIB], preload=())
    added: dict[str, list[int]] = {"launchcost": [], "alloccost": []}
    with hooked.ready() as mine, bare.ready() as other:
        for client in (mine, other):
            client.must("kernel 0 none")
        for _ in range(ROUNDS):
            for what, count in (("launchcost", LAUNCHES), ("alloccost", ALLOCATIONS)):
                # side by side, so that the load of the computer is the same for both
                with_shim, without = mine.must(f"{what} {count}").told[0], other.must(f"{what} {count}").told[0]
                added[what].append(with_shim - without)
    return {
        "compute": compute.value,
        "added_per_launch_ns": round(median(added["launchcost"])),
        "added_per_allocation_and_release_ns": round(median(added["alloccost"])),
    }


def starts(bench: Bench, folder: Path) -> dict[str, float]:
    """Seconds of wall time and CPU time a process for 300 processes that start and allocate at the same time."""

    def measure(tenant: Tenant) -> tuple[float, float]:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        crowd(tenant, STARTS, "malloc 0 1000000")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.monotonic() - begun, used / STARTS

    wall, cpu = measure(Tenant(bench, folder / "many", [8 * GIB]))
    bare_wall, bare_cpu = measure(Tenant(bench, folder / "many-bare", [8 * GIB], preload=()))
    return {
        "starts": STARTS,
        "all_s": round(wall, 2),
        "all_without_shim_s": round(bare_wall, 2),
        "cpu_each_ms": round(1000 * cpu, 2),
        "cpu_each_without_shim_ms": round(1000 * bare_cpu, 2),
    }


def main() -> None:
    """Measure all; a minute."""
    with TemporaryDirectory(prefix="penstock-shim-") as name:
        folder = Path(name)
        bench = Bench.build(folder)
        clock = build_clock(folder)
        for compute in (Compute.OFF, Compute.STRICT):
            print(json.dumps({"bench": "shim cost", **cost(bench, folder, compute)}), flush=True)
        print(json.dumps({"bench": "shim starts", **starts(bench, folder)}), flush=True)
        for milli in ([300, 700], [500, 250, 250]):
            for number, work in enumerate(WORK):
                place = folder / f"{len(milli)}-{number}"
                place.mkdir()
                got = shares(bench, clock, place, milli, [work], seconds=240)
                points = max(abs(100 * part - share / 10) for part, share in zip(got, milli, strict=True))
                line = {
                    "bench": "shim shares",
                    "milli": milli,
                    "work": work,
                    "got": [round(1000 * part) for part in got],
                }
                print(json.dumps({**line, "off_by_points": round(points, 2)}), flush=True)


if __name__ == "__main__":
    main()
