"""Reports of runs for the API: each is cut to what a message takes, and more than one takes is told in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from appliance.site.repair.record import Record, Step
from common.backup_protocol import MAX_ORDERS, BackupOrderReport
from common.repair_protocol import MAX_RUNS, MAX_STEPS, MAX_TASKS, CommandReport, RunReport, StepReport

ROOM = 1 << 20
"""Bytes of the steps of a run, and of all runs or orders of a message: of the 4 MiB that the API takes, looks at nodes
and the list of backups have the rest.
"""
MOST = min(MAX_RUNS, MAX_ORDERS)
"""Runs, or orders, of a message."""
ROOM_OF_COMMANDS = ROOM // 4
"""Bytes of the commands of a message."""
ROOM_OF_TASKS = ROOM // 4
"""Bytes of the tasks of a step, so that there is always room for one step."""

Told = TypeVar("Told", RunReport, BackupOrderReport)
Said = TypeVar("Said", RunReport, BackupOrderReport, CommandReport)
Part = TypeVar("Part", str, StepReport)


def report(record: Record) -> RunReport:
    """Return a run as it is told, without the beginning where it is too long; raises ValidationError where nothing of
    it can be told.
    """
    known = record.plain() | {"finished_at": record.finished_at or None, "steps": []}
    try:
        return RunReport.model_validate(known | {"steps": _steps(record)})
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
        reason = f"{record.reason} (its steps cannot be told for {where} of one; {_where_all_is(record)})"
        return RunReport.model_validate(known | {"reason": reason.lstrip()})


class Telling(Generic[Told]):
    """Which runs or orders the API has heard as they are; more than a message takes is told in parts."""

    def __init__(self) -> None:
        """Begin with an API that has heard of none."""
        self._heard: dict[str, Told] = {}
        self._next: dict[str, Told] = {}
        self.is_all = True
        """Whether nothing is left to be told after the last part."""

    def part(self, every: Sequence[Told]) -> list[Told]:
        """Return the next part of all that is not heard; until `heard` is called nothing counts as heard."""
        self._next = {each.id: each for each in every if self._heard.get(each.id) == each}
        self._heard = {}
        news = [each for each in every if each.id not in self._next]
        part = first(news[:MOST], ROOM)
        self.is_all = len(part) == len(news)
        self._next |= {each.id: each for each in part}
        return part

    def heard(self) -> None:
        """Take that the last part was heard, and all before it."""
        self._heard = self._next


def first(news: Sequence[Said], room: int) -> list[Said]:
    """Return the first ones that fit into so many bytes, and one at least."""
    kept: list[Said] = []
    for each in news:
        room -= len(to_json(each))
        if kept and room < 0:
            break
        kept.append(each)
    return kept


def _steps(record: Record) -> list[dict[str, Any]]:
    steps = _last([_step(step, record) for step in record.steps[-MAX_STEPS:]], ROOM)
    told = [step.model_dump() for step in steps]
    if left_out := len(record.steps) - len(told):
        word = f"{left_out} steps before this one are left out: {_where_all_is(record)}"
        told[0]["tasks"] = [word, *told[0]["tasks"]]
    return told


def _step(step: Step, record: Record) -> StepReport:
    # two places are for words of what is left out
    known = StepReport.model_validate(asdict(step) | {"tasks": step.tasks[-MAX_TASKS + 2 :]})
    tasks = _last(known.tasks, ROOM_OF_TASKS)
    if left_out := len(step.tasks) - len(tasks):
        tasks = [f"{left_out} tasks before these are left out: {_where_all_is(record)}", *tasks]
    return known.model_copy(update={"tasks": tasks})


def _last(parts: Sequence[Part], room: int) -> list[Part]:
    """Return the last ones that fit into so many bytes."""
    kept: list[Part] = []
    for each in reversed(parts):
        room -= len(to_json(each)) + 1
        if room < 0:
            break
        kept.append(each)
    return kept[::-1]


def _where_all_is(record: Record) -> str:
    return f"`penstock repair history {record.id}` on the reservoir node has all"
