"""A control API that does not answer is repaired by the controller itself, where the site wants that."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from appliance.site.alone import alone
from appliance.site.model import Site
from appliance.site.repair.controller import Controller
from appliance.site.repair.outage import AFTER_S
from appliance.site.repair.record import Record, Records
from common.repair_protocol import ControllerReply, ControllerReport
from common.repairs import TRIES, RunState

NODES = [{"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}]
REQUEST = httpx.Request("POST", "https://m1/")


@dataclass
class Machine:
    """A reservoir node, its clock, and an API that answers with a status or not at all."""

    folder: Path
    repair: dict[str, object]
    status: int | None = None
    clock_s: float = 1000.0
    begun: list[Record] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start its controller."""
        self.records = Records(self.folder / "repairs")
        self.controller = Controller(
            lambda: Site.model_validate({"name": "s", "nodes": NODES, "repair": self.repair}),
            self.records,
            orders=True,
            say=self.said.append,
            start=self.start,
            look=lambda identity, kept: kept.get(identity),
            health=lambda *_: [],
            now=lambda: self.clock_s,
            state=self.folder,
            backups=self.folder / "backup",
        )

    def start(self, record: Record, into: Records) -> None:
        record.state = RunState.RUNNING
        self.begun.append(record)
        into.keep(record)

    def over(self) -> None:
        for record in self.begun:
            record.state = RunState.STOPPED
            self.records.keep(record)

    def answer(self, _: ControllerReport) -> ControllerReply:
        if self.status is None:
            raise httpx.ConnectError("refused")
        httpx.Response(self.status, request=REQUEST).raise_for_status()
        return ControllerReply()

    def passes(self, seconds: float) -> None:
        """Let time pass, and the controller ask meanwhile and at the end."""
        end = self.clock_s + seconds
        while self.clock_s < end:
            self.clock_s = min(end, self.clock_s + 10)
            try:
                self.controller.turn(self.answer)
            except httpx.HTTPError:
                continue


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, {"controller": True, "automatic": ["database"]})


@pytest.mark.parametrize("status", [None, 500, 503])
def test_an_api_that_is_silent_for_long_is_repaired(machine: Machine, status: int | None) -> None:
    machine.status = status
    machine.passes(AFTER_S - 10)
    assert machine.begun == []
    machine.passes(10)
    (run,) = machine.begun
    assert (run.repair, run.by, run.limit, run.dry_run, run.agreed) == ("5-C", "check:database", None, False, False)
    assert machine.said == [f"the API has not answered for {AFTER_S:g} s: 5-C begins"]
    machine.passes(1000)
    assert len(machine.begun) == 1, "that one is still running"


def test_it_is_tried_a_few_times_until_the_api_has_answered(machine: Machine) -> None:
    begun = []
    for _ in range(200):
        machine.passes(10)
        machine.over()
        begun.append(len(machine.begun))
    assert begun[-1] == TRIES
    assert begun.index(2) - begun.index(1) >= 19, "not at once"
    machine.status = 200
    machine.passes(10)
    machine.status = None
    machine.passes(AFTER_S)
    assert len(machine.begun) == TRIES + 1


@pytest.mark.parametrize("status", [200, 403, 422])
def test_one_that_answers_whatever_it_says_is_left_alone(machine: Machine, status: int) -> None:
    machine.status = status
    machine.passes(10 * AFTER_S)
    assert machine.begun == []


def test_it_may_be_away_for_short_again_and_again(machine: Machine) -> None:
    for _ in range(20):
        machine.status = None
        machine.passes(AFTER_S - 20)
        machine.status = 200
        machine.passes(10)
    assert machine.begun == []


def test_a_deploy_or_a_backup_that_is_brought_back_stops_it_for_good_reason(machine: Machine) -> None:
    with alone(machine.folder):
        machine.passes(10 * AFTER_S)
    assert machine.begun == []
    machine.passes(AFTER_S - 20)
    assert machine.begun == [], "it has the same time after that"
    machine.passes(20)
    assert len(machine.begun) == 1


@pytest.mark.parametrize("repair", [{}, {"controller": True}, {"controller": True, "automatic": ["engine"]}])
def test_nothing_is_done_where_the_site_does_not_want_it(tmp_path: Path, repair: dict[str, object]) -> None:
    machine = Machine(tmp_path, repair)
    machine.passes(10 * AFTER_S)
    assert machine.begun == []


def test_time_in_which_nobody_asked_does_not_count(machine: Machine) -> None:
    """A look at the nodes may take long."""
    machine.status = 200
    machine.passes(10)
    machine.clock_s += 2 * AFTER_S
    machine.status = None
    machine.passes(AFTER_S - 10)
    assert machine.begun == []
    machine.passes(20)
    assert len(machine.begun) == 1
