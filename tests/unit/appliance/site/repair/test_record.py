"""Records of repairs: which are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.site.repair import record as module
from appliance.site.repair.record import Record, Records, Step


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


def test_a_record_whose_tasks_are_none_is_damaged_and_stops_nothing(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for steps in ([], [Step("m1", "2026-11-23T12:00:00+00:00")]):
        records.keep(Record("5-A", by="root", steps=steps))
    for path in tmp_path.iterdir():
        path.write_text(path.read_text().replace('"tasks": []', '"tasks": null'))
    assert [record.steps for record in records.all()] == [[]]
    assert len(records.damaged()) == 1
