"""Runs of repairs: who is looked at, who is repaired and in which order, where a run stops. Ansible is played here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from appliance.site import playbook
from appliance.site.model import Site
from appliance.site.playbook import Counts, Event, Outcome, Result
from appliance.site.repair import ladder
from appliance.site.repair.record import Record, Records
from common.errors import NotFoundError
from common.repairs import RunState


def site(workers: int = 4, **repair: object) -> Site:
    nodes: list[dict[str, Any]] = [{"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}]
    nodes += [
        {"name": f"w{number}", "address": f"10.0.0.{number + 1}", "roles": ["worker"], "agent_port": 6001}
        for number in range(1, workers + 1)
    ]
    return Site.model_validate({"name": "s", "nodes": nodes, "repair": repair})


@dataclass
class Ansible:
    """A site as Ansible sees it: who is sick, whom no ladder helps, who does not answer."""

    sick: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    beyond_help: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def run(self, name: str, hosts: dict[str, Any], *, listen: Callable[[Event], None], **options: Any) -> Result:
        self.calls.append((name, options | hosts["all"]["vars"]))
        result = Result(name, log=Path("/log"))
        if hosts["all"]["vars"].get("site_only_look"):
            for node in hosts["all"]["hosts"]:
                self._look(node, listen, result)
        else:
            (node,) = options["limit"]
            self._climb(node, listen, result)
        return result

    def _look(self, node: str, listen: Callable[[Event], None], result: Result) -> None:
        if node in self.silent:
            event = Event("Nodes", node, "Look", Outcome.UNREACHABLE, "no route")
            listen(event)
            result.failures.append(event)
            result.nodes[node] = Counts(unreachable=1)
            return
        listen(said(node, "node", ok=node not in self.stopped, sessions=self.sessions))
        if node != "m1":
            listen(said(node, "agent", ok=node not in self.sick))

    def _climb(self, node: str, listen: Callable[[Event], None], result: Result) -> None:
        listen(Event("Agent", node, "Start it", Outcome.CHANGED))
        listen(said(node, "agent", ok=node not in self.beyond_help, rung="start_worker"))
        if node in self.beyond_help:
            event = Event("Agent", node, "Check that the symptom is gone", Outcome.FAILED, "it is still there")
            listen(event)
            result.failures.append(event)
            result.code = 2


def said(node: str, name: str, *, ok: bool, rung: str = "", sessions: list[str] | None = None) -> Event:
    symptom = {"name": name, "rung": rung, "ok": ok, "evidence": "seen", "sessions": sessions or []}
    return Event("Look", node, "Look", Outcome.OK, "", {ladder.SYMPTOM: symptom})


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Record]:
    """Run a repair at a site as Ansible sees it."""
    monkeypatch.setattr(ladder, "require_controller", lambda _: None)
    records = Records(tmp_path / "repairs")

    def climb(ansible: Ansible, identity: str = "5-D", *, of: Site | None = None, **order: Any) -> Record:
        monkeypatch.setattr(playbook, "run", ansible.run)
        record = Record(identity, by="ann", **order)
        return ladder.climb(of or site(), record, records, state=tmp_path / "state")

    return climb


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "repairs")


def limits(ansible: Ansible) -> list[str]:
    return [call["limit"][0] for _, call in ansible.calls if "limit" in call]


def test_where_nobody_has_the_symptom_nothing_is_done(climb: Callable[..., Record]) -> None:
    ansible = Ansible()
    record = climb(ansible)
    assert (record.state, record.tried, limits(ansible)) == (RunState.HEALTHY, [], [])
    assert [name for name, _ in ansible.calls] == ["repair/5-d"]


def test_sick_nodes_are_repaired_one_after_the_other(climb: Callable[..., Record]) -> None:
    ansible = Ansible(sick=["w3", "w1"])
    record = climb(ansible, of=site(9))
    assert (record.state, record.tried, limits(ansible)) == (RunState.REPAIRED, ["w1", "w3"], ["w1", "w3"])
    rungs = [(step.node, step.rung, step.ok, step.tasks) for step in record.steps if step.rung]
    assert rungs == [
        ("w1", "start_worker", True, ["Start it: changed"]),
        ("w3", "start_worker", True, ["Start it: changed"]),
    ]


def test_a_limit_leaves_others_as_they_are(climb: Callable[..., Record]) -> None:
    ansible = Ansible(sick=["w3", "w1"])
    assert climb(ansible, of=site(9), limit="w3").tried == ["w3"]


def test_a_limit_names_a_node_of_the_site(climb: Callable[..., Record]) -> None:
    record = climb(Ansible(), limit="w9")
    assert (record.state, record.reason.startswith("--limit: the site has no node w9")) == (RunState.REFUSED, True)


def test_the_first_ladder_that_does_not_help_is_the_last(climb: Callable[..., Record]) -> None:
    ansible = Ansible(sick=["w1", "w2"], beyond_help=["w1"])
    record = climb(ansible, of=site(9))
    assert (record.state, limits(ansible)) == (RunState.STOPPED, ["w1"])
    assert "it is still there" in record.reason


def test_a_dry_run_changes_nothing_and_counts_as_no_try(climb: Callable[..., Record], records: Records) -> None:
    ansible = Ansible(sick=["w1"])
    record = climb(ansible, dry_run=True)
    assert (record.state, record.tried, record.sick) == (RunState.REHEARSED, [], ["w1"])
    assert all(call["check"] for _, call in ansible.calls)
    assert records.tries("5-D", "w1") == []


def test_the_look_changes_nothing(climb: Callable[..., Record]) -> None:
    ansible = Ansible(sick=["w1"])
    climb(ansible)
    assert [call["check"] for _, call in ansible.calls] == [True, False]


def test_a_fourth_try_within_ten_minutes_is_refused(climb: Callable[..., Record], records: Records) -> None:
    assert [climb(Ansible(sick=["w1"])).state for _ in range(4)] == [*[RunState.REPAIRED] * 3, RunState.REFUSED]
    assert climb(Ansible(sick=["w2"])).state is RunState.REPAIRED, "tries are counted by node"
    for record in records.all():
        record.tried_at = {"w1": (datetime.now(UTC) - timedelta(minutes=11)).isoformat()}
        records.keep(record)
    assert climb(Ansible(sick=["w1"])).state is RunState.REPAIRED


def test_a_try_counts_from_its_turn_and_not_from_the_order(climb: Callable[..., Record]) -> None:
    waited = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()
    runs = [climb(Ansible(sick=["w1"]), ordered_at=waited) for _ in range(4)]
    assert [run.state for run in runs] == [*[RunState.REPAIRED] * 3, RunState.REFUSED]


def test_a_try_is_on_the_disk_before_the_ladder(
    climb: Callable[..., Record], records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(Ansible, "_climb", lambda *_: seen.append(len(records.tries("5-D", "w1"))))
    climb(Ansible(sick=["w1"]))
    assert seen == [1]


@pytest.mark.parametrize("text", ["", "[]", "{}", "\ufffd"])
def test_a_damaged_record_stops_nothing(climb: Callable[..., Record], records: Records, text: str) -> None:
    first = climb(Ansible(sick=["w1"]))
    (records.folder / "x.json").write_text(text)
    assert climb(Ansible(sick=["w1"])).state is RunState.REPAIRED
    assert len(records.all()) == 2
    assert [path.name for path in records.damaged()] == ["x.json"]
    with pytest.raises(NotFoundError, match="damaged"):
        records.get("x")
    assert records.get(first.id) == first


def test_what_a_later_release_has_in_a_record_is_passed_over(climb: Callable[..., Record]) -> None:
    record = climb(Ansible(sick=["w1"]))
    plain = record.plain() | {"new": 1}
    plain["steps"] = [step | {"new": 1} for step in plain["steps"]]
    assert Record.of(plain) == record


@pytest.mark.parametrize(
    "ansible",
    [
        Ansible(sick=["w1", "w2"]),
        Ansible(sick=["w1"], stopped=["w2"]),
        Ansible(sick=["w1"], silent=["w2"]),
    ],
    ids=["sick", "stopped", "silent"],
)
def test_nothing_is_repaired_while_more_nodes_are_unhealthy(climb: Callable[..., Record], ansible: Ansible) -> None:
    record = climb(ansible)
    assert (record.state, limits(ansible)) == (RunState.REFUSED, [])
    assert "2 of 5 nodes are unhealthy" in record.reason


def test_images_may_be_missing_on_all_nodes(climb: Callable[..., Record]) -> None:
    ansible = Ansible(sick=["w1", "w2", "w3", "w4"])
    assert climb(ansible, "5-I").tried == ["w1", "w2", "w3", "w4"]


def test_a_node_that_does_not_answer_is_not_called_healthy(climb: Callable[..., Record]) -> None:
    record = climb(Ansible(silent=["w2"]))
    assert record.state is RunState.REFUSED
    assert "w2 cannot be reached" in record.reason


def test_a_node_whose_services_stopped_is_not_called_healthy(climb: Callable[..., Record]) -> None:
    record = climb(Ansible(stopped=["w2"]), "5-E")
    assert (record.state, record.tried) == (RunState.REFUSED, [])
    assert "w2 is not well: seen" in record.reason
    assert "run 5-D" in record.reason
    assert climb(Ansible(stopped=["w2"]), "5-E", limit="w1").state is RunState.HEALTHY


@pytest.mark.parametrize(
    ("allowed", "agreed", "reason"),
    [(False, True, "allows no reboot"), (True, False, "would end first of ann"), (True, True, None)],
)
def test_the_ladder_knows_which_rungs_are_forbidden(
    climb: Callable[..., Record], allowed: bool, agreed: bool, reason: str | None
) -> None:
    ansible = Ansible(sick=["w1"], sessions=["first of ann"])
    climb(ansible, "5-G", of=site(reboot=allowed), agreed=agreed)
    forbidden = ansible.calls[-1][1]["repair_forbidden"]
    assert reason in forbidden["reboot"] if reason else forbidden == {}


def test_a_deploy_that_runs_keeps_repairs_away(climb: Callable[..., Record], tmp_path: Path) -> None:
    from appliance.site.alone import alone

    with alone(tmp_path / "state"):
        record = climb(Ansible(sick=["w1"]))
    assert record.state is RunState.REFUSED
    assert "still running" in record.reason


def test_what_ends_a_run_from_outside_stands_in_its_record(climb: Callable[..., Record], records: Records) -> None:
    class Ended(Ansible):
        def run(self, name: str, *arguments: Any, **options: Any) -> Result:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        climb(Ended())
    record = records.all()[0]
    assert (record.state, record.reason) == (RunState.INTERRUPTED, "the run was ended from outside")


def test_an_error_that_nobody_foresaw_is_in_the_record_in_its_own_words(
    climb: Callable[..., Record], records: Records
) -> None:
    class Broken(Ansible):
        def _climb(self, *_: object) -> None:
            raise KeyError("rung")

    with pytest.raises(KeyError):
        climb(Broken(sick=["w1"]))
    record = records.all()[0]
    assert (record.state, record.tried) == (RunState.INTERRUPTED, ["w1"])
    assert record.reason == "an error that nobody foresaw: KeyError: 'rung'"
    assert record.finished_at


def test_records_are_for_root_alone_and_found_by_the_beginning_of_their_id(
    climb: Callable[..., Record], records: Records
) -> None:
    record = climb(Ansible(sick=["w1"]))
    assert records.get(record.id[:8]) == record
    assert {path.stat().st_mode & 0o777 for path in records.folder.iterdir()} == {0o600}
    for wrong in ("", "../x", "0000"):
        with pytest.raises(NotFoundError):
            records.get(wrong)
