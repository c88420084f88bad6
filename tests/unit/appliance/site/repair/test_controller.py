"""The controller's service, with the API as a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.site.alone import alone
from appliance.site.backup.catalogue import Catalogue
from appliance.site.backup.catalogue import Record as Backup
from appliance.site.repair.controller import WHILE_HELD_S, Controller
from appliance.site.repair.record import Record, Records, Step, moment
from common.backup_protocol import BackupOrder, BackupOrderState
from common.repair_protocol import LOOK_S, ControllerReply, ControllerReport, NodeChecks, RepairOrder
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
