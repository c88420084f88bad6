"""The repairs as they are told, against the playbooks that do them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from common.errors import NotFoundError
from common.repairs import REPAIRS, RUNGS, Repair, find

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("repair", REPAIRS.values(), ids=lambda repair: repair.id)
def test_a_ladder_is_what_is_told_of_it(repair: Repair) -> None:
    plays = yaml.safe_load((ROOT / "playbooks" / f"{repair.playbook}.yml").read_text())
    assert plays[0]["import_playbook"] == "nodes.yml"
    rungs = [rung for play in plays[1:] for role in play["roles"] for rung in role["vars"]["repair_rungs"]]
    assert tuple(rungs) == repair.rungs


def test_every_playbook_is_a_repair() -> None:
    files = {path.stem.upper() for path in (ROOT / "playbooks" / "repair").glob("5-*.yml")}
    assert files == set(REPAIRS)


def test_every_rung_is_told_and_has_its_tasks() -> None:
    used = {rung for repair in REPAIRS.values() for rung in repair.rungs}
    assert used == set(RUNGS)
    assert {path.stem.removeprefix("rung_") for path in (ROOT / "roles/repair/tasks").glob("rung_*.yml")} == used


def test_the_words_of_the_manual_stand_as_they_are() -> None:
    told = [symptom for repair in REPAIRS.values() for symptom in repair.symptoms]
    assert "[Error: Worker connection error]" in told
    assert "[Error : NodeStatusUnknown]" in told
    assert "Get node network interface error" in told


def test_a_repair_is_found_by_its_id_in_any_letters() -> None:
    assert find("5-h1") is REPAIRS["5-H1"]
    with pytest.raises(NotFoundError, match="there is no repair 5-Z"):
        find("5-Z")
