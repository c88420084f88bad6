"""A cycle is saved, read again and decided again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from typer.testing import CliRunner

from api import __main__ as program
from api.scheduler import record
from api.scheduler.decide import decide
from api.scheduler.snapshot import Snapshot
from common.errors import InputError
from tests.unit.api.scheduler.test_properties import snapshots
from tests.unit.api.scheduler.world import node, on, project, runs, work

CYCLE = Snapshot(
    1_000_000_000,
    (node("n", 2),),
    (project("a", 1), project("b", 1)),
    (runs(work("r", "b", 2), on("n", 1, 1)),),
    (work("1", "a"), work("2", "a", 0, 1)),
)


@given(snapshot=snapshots())
def test_what_is_saved_is_what_is_read(snapshot: Snapshot) -> None:
    snapshot = replace(snapshot, reservations=decide(snapshot).reservations)
    decision = decide(snapshot)
    text = record.save(snapshot, decision)
    again, saved = record.load(text)
    assert (again, saved) == (snapshot, decision)
    assert record.save(again, decide(again)) == text, "byte by byte"
    assert record.differences(saved, decide(again)) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 3}', "\x00"])
def test_what_is_no_cycle_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="name a saved cycle"):
        record.load(text, "cycle.json")


def test_another_format_is_refused() -> None:
    document = json.loads(record.save(CYCLE, decide(CYCLE))) | {"format": 4}
    with pytest.raises(InputError, match="format 4, not 3"):
        record.load(json.dumps(document), "cycle.json")


def test_an_older_format_is_refused_before_its_keys_are() -> None:
    """What they meant is for the version that wrote them."""
    decision: dict[str, object] = {"placements": {}, "reclaims": [], "waits": {}, "log": [], "kept": {}}
    document = json.loads(record.save(CYCLE, decide(CYCLE))) | {"format": 2, "decision": decision}
    with pytest.raises(InputError, match="format 2, not 3"):
        record.load(json.dumps(document), "cycle.json")


def test_replay_says_that_the_decision_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "cycle.json"
    file.write_text(record.save(CYCLE, decide(CYCLE)))
    result = CliRunner().invoke(program.app, ["replay", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        *decide(CYCLE).log,
        "equal to the saved decision",
    ]


def test_replay_names_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "cycle.json"
    other = replace(CYCLE, running=())
    file.write_text(record.save(CYCLE, decide(other)))
    result = CliRunner().invoke(program.app, ["replay", str(file)], catch_exceptions=False)
    assert result.exit_code == 1
    assert (
        "1: placed on n[0:1000]; now waits at 1, reclaiming: a session of another project is still being stopped"
        in result.stdout
    )
    assert "r: not reclaimed; now for 1" in result.stdout
    assert result.stdout.splitlines()[-1] == "differs from the saved decision"


def test_a_file_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the file of a saved cycle"):
        CliRunner().invoke(program.app, ["replay", str(tmp_path / "none.json")], catch_exceptions=False)
