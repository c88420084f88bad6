"""Records of repairs: which are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.site.repair import record as module
from appliance.site.repair.record import Record, Records


@pytest.mark.parametrize("later_s", [-60, 60], ids=["the clock went on", "the clock was put back"])
def test_the_oldest_are_forgotten_and_never_the_one_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    records, ids = Records(tmp_path), []
    for number in range(5):
        record = Record("5-A", by="root")
        records.keep(record)
        ids.append(record.id)
        moment = (tmp_path / f"{record.id}.json").stat().st_mtime + later_s + number
        os.utime(tmp_path / f"{record.id}.json", (moment, moment))
    assert {record.id for record in records.all()} == set(ids[-3:])
