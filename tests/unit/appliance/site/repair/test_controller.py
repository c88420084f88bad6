"""The controller's service, with the API as a function."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from api.endpoints.bodies import AGENTS
from appliance.site import commands
from appliance.site.alone import alone
from appliance.site.backup.catalogue import Catalogue
from appliance.site.backup.catalogue import Record as Backup
from appliance.site.repair.controller import WHILE_HELD_S, Controller
from appliance.site.repair.record import Record, Records, Step, moment
from common.backup_protocol import BackupOrder, BackupOrderState
from common.check_protocol import CheckReport
from common.checks import Check, CheckState
from common.errors import UnavailableError
from common.messages import MAX_WORDS
from common.repair_protocol import (
    LOOK_S,
    MAX_COMMANDS,
    MAX_RUNS,
    MAX_STEPS,
    MAX_TASKS,
    ControllerReply,
    ControllerReport,
    NodeChecks,
    RepairOrder,
)
from common.repairs import RunState
from tests.unit.appliance.site.repair.test_ladder import site

ORDER = RepairOrder.model_validate(
    {
        "id": "00000000-0000-4000-8000-000000000001",
        "repair": "5-C",
        "by": "ann",
        "dry_run": True,
        "ordered_at": moment(),
    }
)


BACKUP_ORDER = BackupOrder.model_validate(
    {"id": "00000000-0000-4000-8000-000000000002", "action": "drill", "by": "ann", "ordered_at": moment()}
)


class Api:
    """An API that hands out one order."""

    def __init__(self, order: RepairOrder | None = None, backup_order: BackupOrder | None = None) -> None:
        self.order = order
        self.backup_order = backup_order
        self.heard: list[ControllerReport] = []

    def __call__(self, report: ControllerReport) -> ControllerReply:
        self.heard.append(report)
        return ControllerReply(order=self.order, backup_order=self.backup_order)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "repairs")


@pytest.fixture
def started() -> list[Record]:
    return []


@pytest.fixture
def controller(records: Records, started: list[Record], tmp_path: Path) -> Controller:
    def start(record: Record, into: Records) -> None:
        started.append(record)
        into.keep(record)

    return Controller(
        site,
        records,
        orders=True,
        say=print,
        start=start,
        look=lambda identity, kept: kept.get(identity),
        health=lambda *_: [],
        start_order=lambda order, into: into.keep(order),
        look_at_order=lambda order, _: order,
        state=tmp_path,
        backups=tmp_path / "backup",
    )


def test_an_order_is_started_once_with_all_that_it_says(controller: Controller, started: list[Record]) -> None:
    api = Api(ORDER)
    controller.turn(api)
    controller.turn(api)
    (record,) = started
    assert (record.id, record.repair, record.by, record.dry_run) == (ORDER.id, "5-C", "ann", True)
    assert [report.wants for report in api.heard] == [True, False], "one at a time"


def test_a_repair_that_has_no_name_here_is_not_run(
    controller: Controller, started: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    controller.turn(Api(ORDER.model_copy(update={"repair": "rm -rf"})))
    assert started == []
    assert "no such repair" in capsys.readouterr().out


def test_runs_are_told_when_they_are_new_or_have_changed(controller: Controller, records: Records) -> None:
    record, api = Record("5-A", by="root"), Api()
    records.keep(record)
    controller.turn(api)
    controller.turn(api)
    record.state, record.finished_at = RunState.REPAIRED, moment()
    records.keep(record)
    controller.turn(api)
    assert [[run.state for run in report.runs] for report in api.heard] == [["ordered"], [], ["repaired"]]


def test_a_run_of_which_much_is_said_is_told_without_the_rest(controller: Controller, records: Records) -> None:
    said = "no route to host " * 2000
    records.keep(Record("5-A", "root", state=RunState.STOPPED, reason=said, steps=[Step("m1", moment(), tasks=[said])]))
    api = Api()
    controller.turn(api)
    [run] = api.heard[0].runs
    assert [text[-1] for text in (run.reason, *run.steps[0].tasks)] == ["…", "…"]


def test_more_than_one_message_takes_is_told_in_parts(controller: Controller, records: Records) -> None:
    steps = [Step("m1", moment(), evidence="no route to host " * 1000) for _ in range(50)]
    every = [Record("5-A", "root", state=RunState.STOPPED, steps=steps) for _ in range(8)]
    for record in every:
        records.keep(record)
    api = Api()
    for _ in every:
        controller.turn(api)
    controller.turn(api)
    assert [len(report.model_dump_json()) < 2 << 20 for report in api.heard] == [True] * 9
    assert sorted(run.id for report in api.heard for run in report.runs) == sorted(record.id for record in every)
    wants = [report.wants for report in api.heard]
    assert wants == [False] * 7 + [True] * 2, "what is not told yet would be handed out again"


def test_a_run_after_a_clock_was_put_back_is_told_and_is_the_only_one(
    controller: Controller, records: Records, started: list[Record]
) -> None:
    for number in range(MAX_RUNS + 10):
        records.keep(Record("5-A", "root", state=RunState.STOPPED, ordered_at=f"2036-11-23T12:{number:02}:00+00:00"))
    api = Api(ORDER)
    for _ in range(4):
        controller.turn(api)
    [record] = started
    record.state = RunState.REPAIRED
    records.keep(record)
    controller.turn(api)
    assert [run.state for report in api.heard for run in report.runs if run.id == ORDER.id] == ["ordered", "repaired"]
    assert [len(report.runs) for report in api.heard] == [MAX_RUNS, 11, 0, 0, 1]


def test_a_run_that_is_too_long_is_told_by_its_end_with_a_word_of_the_rest(
    controller: Controller, records: Records
) -> None:
    tasks = [f"task {number}: changed" for number in range(MAX_TASKS + 5)]
    steps = [Step("m1", moment(), evidence=str(number)) for number in range(MAX_STEPS + 5)]
    long, wide = (Record("5-A", "root", state=RunState.STOPPED) for _ in range(2))
    long.steps, wide.steps = steps, [Step("m1", moment(), tasks=tasks)]
    records.keep(long)
    records.keep(wide)
    api = Api()
    controller.turn(api)
    controller.turn(api)
    told = {run.id: run for report in api.heard for run in report.runs}
    first, *_, last = told[long.id].steps
    assert last.evidence == str(MAX_STEPS + 4)
    left_out = MAX_STEPS + 5 - len(told[long.id].steps)
    where = f"`penstock repair history {long.id}` on the reservoir node has all"
    assert (left_out > 0, first.tasks) == (True, [f"{left_out} steps before this one are left out: {where}"])
    [step] = told[wide.id].steps
    assert "tasks before these are left out" in step.tasks[0]
    assert step.tasks[-1] == f"task {MAX_TASKS + 4}: changed"


@pytest.mark.parametrize(
    ("said", "told"),
    [("a\0b", "a\\x00b"), ("a\udc80b", "a\\udc80b"), ("\0" * 30_000, f"{chr(92)}x00" * 4999 + "\\x0…")],
)
def test_what_no_text_can_have_is_told_in_other_signs(
    controller: Controller, records: Records, said: str, told: str
) -> None:
    records.keep(
        Record("5-A", "root", state=RunState.STOPPED, reason=said, steps=[Step("m1", moment(), evidence=said)])
    )
    api = Api()
    controller.turn(api)
    [run] = api.heard[0].runs
    assert (run.reason, run.steps[0].evidence) == (told, told)
    assert json.loads(run.model_dump_json())["reason"] == told


def test_no_record_keeps_the_others_from_being_told(
    controller: Controller, records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    odd: Any = {"penstock": "says no text"}
    long = Record("5-A", "root", limit="m" * 300, state=RunState.REFUSED)
    untold = Record("5-A", "root", state=RunState.STOPPED, steps=[Step("m1", moment(), evidence=odd)])
    timeless = Record("5-A", "root", state=RunState.STOPPED, ordered_at="2026-11-23T12:00:00")
    for record in (long, untold, timeless):
        records.keep(record)
    api = Api()
    controller.turn(api)
    controller.turn(api)
    told = {run.id: run for run in api.heard[0].runs}
    assert told.keys() == {long.id, untold.id}
    assert told[long.id].limit == "m" * 254 + "…"
    assert (told[untold.id].steps, "its steps cannot be told" in told[untold.id].reason) == ([], True)
    assert capsys.readouterr().out.count(timeless.id) == 1


def test_what_the_api_did_not_hear_is_told_again(controller: Controller, records: Records) -> None:
    def away(report: ControllerReport) -> ControllerReply:
        raise OSError

    records.keep(Record("5-A", by="root"))
    with pytest.raises(OSError):
        controller.turn(away)
    api = Api()
    controller.turn(api)
    assert len(api.heard[0].runs) == 1


def test_what_has_no_agent_is_looked_at_now_and_then_and_told_once(records: Records, tmp_path: Path) -> None:
    api, moment, seen = Api(), [0.0], [NodeChecks(node="s1", checks=[])]
    controller = Controller(
        site,
        records,
        orders=False,
        say=print,
        health=lambda *_: seen,
        now=lambda: moment[0],
        start=lambda *_: None,
        state=tmp_path,
        backups=tmp_path / "backup",
    )
    for moment[0] in (0.0, 2.0, LOOK_S - 1, LOOK_S):
        controller.look()
        controller.turn(api)
    assert [report.nodes for report in api.heard] == [seen, None, None, seen]
    assert not any(report.wants for report in api.heard), "the site takes no orders"


def test_what_is_not_well_is_looked_at_again_soon_while_that_is_news(records: Records, tmp_path: Path) -> None:
    """After a boot much is not up yet: nobody is told of that for as long as a look usually takes to come again."""
    clock, looks = [0.0], list[float]()
    state = CheckState.FAIL

    def look(*_: object) -> list[NodeChecks]:
        looks.append(clock[0])
        found = Check("service", "services run", state, "", subject="postgresql")
        return [NodeChecks(node="m1", checks=[CheckReport.of(found)])]

    controller = Controller(
        *(site, records), orders=False, say=print, health=look, now=lambda: clock[0], state=tmp_path
    )

    def looks_until(end: float) -> list[float]:
        looks.clear()
        while clock[0] < end:
            controller.look()
            clock[0] += 1
        return [*looks]

    assert looks_until(100) == [0, 30, 60, 90]
    state = CheckState.OK
    assert looks_until(1000) == [120, 420, 720]
    state = CheckState.FAIL
    assert looks_until(3000)[:3] == [1020, 1050, 1080]
    assert looks[-1] - looks[-2] == LOOK_S, "what stays so is no news"
    state = CheckState.OK
    assert looks_until(3400)[-1] >= 3000


def test_a_look_that_comes_to_nothing_is_tried_again_soon(records: Records, tmp_path: Path) -> None:
    clock, looks = [0.0], list[float]()

    def look(*_: object) -> list[NodeChecks]:
        looks.append(clock[0])
        raise UnavailableError("no node answers", where="m1", hint="wait")

    controller = Controller(
        *(site, records), orders=False, say=print, health=look, now=lambda: clock[0], state=tmp_path
    )
    for clock[0] in range(70):
        with suppress(UnavailableError):
            controller.look()
    assert looks == [0, 30, 60]


def test_while_a_deploy_runs_the_last_look_stands(records: Records, tmp_path: Path) -> None:
    api, moment, looks = Api(), [0.0], [[NodeChecks(node="s1", checks=[])], [NodeChecks(node="s2", checks=[])]]
    controller = Controller(
        *(site, records),
        orders=False,
        say=print,
        health=lambda *_: looks.pop(0),
        now=lambda: moment[0],
        state=tmp_path,
        backups=tmp_path / "backup",
    )

    def told_at(seconds: float) -> list[str] | None:
        moment[0] = seconds
        controller.look()
        controller.turn(api)
        told = api.heard[-1].nodes
        return None if told is None else [node.node for node in told]

    with alone(tmp_path):
        assert told_at(0) is None, "nothing was seen before"
    assert told_at(WHILE_HELD_S) == ["s1"]
    with alone(tmp_path):
        assert told_at(WHILE_HELD_S + LOOK_S) == ["s1"]
        assert told_at(WHILE_HELD_S + LOOK_S + 1) is None
    assert told_at(2 * WHILE_HELD_S + LOOK_S) == ["s2"]
    assert told_at(2 * WHILE_HELD_S + LOOK_S + 1) is None


def test_what_was_seen_while_the_api_was_away_is_told_when_it_is_back(records: Records, tmp_path: Path) -> None:
    api, seen = Api(), [NodeChecks(node="s1", checks=[])]
    controller = Controller(
        site, records, orders=False, say=print, health=lambda *_: seen, state=tmp_path, backups=tmp_path / "backup"
    )
    controller.look()

    def away(_: ControllerReport) -> ControllerReply:
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        controller.turn(away)
    controller.turn(api)
    assert api.heard[0].nodes == seen


def test_an_order_about_a_backup_is_started_once_and_nothing_beside_it(controller: Controller) -> None:
    api = Api(backup_order=BACKUP_ORDER)
    controller.turn(api)
    controller.turn(api)
    controller.turn(api)
    assert [report.wants for report in api.heard] == [True, False, False]
    told = [[(order.id, order.state) for order in report.backup_orders] for report in api.heard]
    assert told == [[], [(BACKUP_ORDER.id, BackupOrderState.ORDERED)], []]


def test_backups_are_told_when_they_have_changed_and_after_the_api_was_away(
    controller: Controller, tmp_path: Path
) -> None:
    def away(report: ControllerReport) -> ControllerReply:
        raise OSError

    api, name = Api(), "penstock-20261123-020000"
    controller.turn(api)
    controller.turn(api)
    (tmp_path / "backup").mkdir()
    Catalogue(tmp_path / "backup").write(Backup(name, "2026-11-23T02:00:00Z", verified="2026-11-23T02:01:00Z"))
    controller.turn(api)
    with pytest.raises(OSError):
        controller.turn(away)
    controller.turn(api)
    told = [None if each.backups is None else [backup.name for backup in each.backups] for each in api.heard]
    assert told == [[], None, [name], [name]]


def test_commands_of_root_are_told_until_the_api_has_heard_of_them(controller: Controller, tmp_path: Path) -> None:
    with commands.told("backup restore", "backups/newest", tmp_path):
        pass

    def away(_: ControllerReport) -> ControllerReply:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        controller.turn(away)
    api = Api()
    controller.turn(api)
    controller.turn(api)
    assert [[told.command for told in report.commands] for report in api.heard] == [["backup restore"], []]


def test_commands_that_say_much_are_told_in_parts_that_the_api_takes(controller: Controller, tmp_path: Path) -> None:
    for number in range(MAX_COMMANDS):
        with pytest.raises(ConnectionError), commands.told("site deploy", f"nodes/{number}", tmp_path):
            raise ConnectionError("오류" * MAX_WORDS)
    api = Api()
    while not api.heard or api.heard[-1].commands:
        controller.turn(api)
    assert max(len(report.model_dump_json().encode()) for report in api.heard) < AGENTS.size // 4
    told = [command.object for report in api.heard for command in report.commands]
    assert told == [f"nodes/{number}" for number in range(MAX_COMMANDS)]
