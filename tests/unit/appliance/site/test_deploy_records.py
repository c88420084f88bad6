"""Records of deploys: which stay, and what they say of nodes."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from appliance.site import deploy_records
from appliance.site.deploy_records import RECORDS_KEPT, RENEWALS_KEPT


def note(state: Path, name: str, count: int = 1, **said: Any) -> None:
    state.mkdir(exist_ok=True)
    for _ in range(count):
        deploy_records.keep({"started": name, "ok": True, **said}, state)


def names(state: Path) -> list[str]:
    return list(dict.fromkeys(record["started"] for record in deploy_records.read(state)))


def test_the_latest_records_stay(tmp_path: Path) -> None:
    note(tmp_path, "first", ok=False)
    note(tmp_path, "later", RECORDS_KEPT, ok=False)
    assert names(tmp_path) == ["later"]
    assert len(deploy_records.read(tmp_path)) == RECORDS_KEPT


def test_renewals_each_day_displace_no_deploy(tmp_path: Path) -> None:
    note(tmp_path, "deploy", 3, reached=["m1"])
    note(tmp_path, "renewal", 2 * RECORDS_KEPT, reached=["m1"], renewal=True)
    assert [record["started"] for record in deploy_records.read(tmp_path)] == ["renewal"] * RENEWALS_KEPT + [
        "deploy"
    ] * 3


def test_the_last_that_was_ok_and_the_last_that_says_something_of_a_node_stay(tmp_path: Path) -> None:
    note(tmp_path, "older", reached=["w1"])
    note(tmp_path, "reached", reached=["w1", "w2"])
    note(tmp_path, "failed at w2", ok=False, nodes={"w2": {}})
    note(tmp_path, "left w2 out", ok=False, left_out={"w2": []})
    note(tmp_path, "fails", RECORDS_KEPT, ok=False)
    assert names(tmp_path) == ["fails", "left w2 out", "failed at w2", "reached"]


def test_the_last_that_was_to_go_to_a_node_counts_also_where_it_failed_or_stopped(tmp_path: Path) -> None:
    note(tmp_path, "good", reached=["w1", "w2", "w3", "w4"])
    note(tmp_path, "bad", ok=False, reached=["w1"], nodes={"w1": {}, "w2": {}}, left_out={"w3": []})
    went = deploy_records.last_by_node(deploy_records.read(tmp_path))
    assert {name: record["started"] for name, record in went.items()} == {
        "w1": "bad",
        "w2": "bad",
        "w3": "bad",
        "w4": "good",
    }


def test_what_is_installed_differs_by_site_file_bundles_program_and_authority(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(b"one")
    said = deploy_records.installs("name: lab\n", ["b", "a"], authority)
    assert said == deploy_records.installs("name: lab\n", ["a", "b"], authority)
    assert (said["bundles"], said["program"]) == (["a", "b"], version("penstock"))
    assert said != deploy_records.installs("name: lab2\n", ["a", "b"], authority)
    authority.write_bytes(b"two")
    assert said != deploy_records.installs("name: lab\n", ["a", "b"], authority)
