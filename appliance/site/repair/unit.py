"""Units of systemd for repair runs: these go on when who started them has gone, and are followed by their record."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from appliance.site import units
from appliance.site.repair.record import Record, Records, moment
from common import process
from common.repairs import OPEN, RunState

STEP_S = 0.3


def start(record: Record, records: Records) -> None:
    """Keep what is ordered, and start the unit that does it."""
    records.keep(record)
    program = Path(sys.executable).with_name("penstock")
    unit = ("--quiet", "--collect", f"--unit={unit_of(record.id)}", f"--description=Penstock repair {record.repair}")
    # one that hangs would keep all others out
    process.run(
        ["systemd-run", "--property=RuntimeMaxSec=2h", *unit, program, "repair", "climb", record.id],
        hint="run it as root on the controller, which runs systemd",
    )


def unit_of(identity: str) -> str:
    """Return the unit of a run."""
    return f"penstock-repair-{identity}"


def look(identity: str, records: Records) -> Record:
    """Return a record as it is now; a run that died without a word is `interrupted` from now on."""
    # first: what ends between the two has written its end
    alive = units.runs(unit_of(identity))
    record = records.get(identity)
    if record.state in OPEN and not alive:
        record.state, record.reason, record.finished_at = (
            RunState.INTERRUPTED,
            "its unit ended without a word",
            moment(),
        )
        records.keep(record)
    return record


def follow(record: Record, records: Records) -> Iterator[Record]:
    """Yield the record whenever it has changed, until its run is over."""
    before = None
    while True:
        now = look(record.id, records)
        if now.plain() != before:
            before = now.plain()
            yield now
        if now.state not in OPEN:
            return
        time.sleep(STEP_S)
