"""Repair runs: a look at all nodes first, then the ladder on one sick node after the other.

Whoever starts a run, it goes this way, on the controller and under the lock of the site's state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from appliance.site import inventory, playbook
from appliance.site.alone import Alone, alone
from appliance.site.deployment import STATE, require_controller
from appliance.site.model import Site
from appliance.site.playbook import Event, Outcome
from appliance.site.repair import rules
from appliance.site.repair.record import Record, Records, Step, moment
from common import repairs
from common.errors import ConflictError, NotFoundError, PenstockError, Problem
from common.repairs import Repair, RunState

SYMPTOM = "penstock_symptom"
OF_NODES = "node"
"""What is looked for on every node: whether it answers, and its own units run."""

Variables = Mapping[str, Any]


def climb(site: Site, record: Record, records: Records, *, state: Path = STATE) -> Record:
    """Do what a record orders, write into it what comes of it, and return it. It is kept after every step."""
    record.state = RunState.RUNNING
    records.keep(record)
    try:
        require_controller(site)
        with alone(state) as held:
            Run(site, record, records, state, held).go()
    except PenstockError as error:
        record.state = RunState.STOPPED if record.tried else RunState.REFUSED
        record.reason = "; ".join(str(problem) for problem in error.problems)
    except BaseException as error:
        record.state, record.reason = RunState.INTERRUPTED, "the run was ended from outside"
        if isinstance(error, Exception):
            record.reason = f"an error that nobody foresaw: {type(error).__name__}: {error}"
        raise
    finally:
        record.finished_at = moment()
        records.keep(record)
    return record


class Run:
    """One run of one repair."""

    def __init__(self, site: Site, record: Record, records: Records, state: Path, held: Alone) -> None:
        """Take what a run needs; `held` is the lock of the site's state."""
        self._site = site
        self._record = record
        self._records = records
        self._state = state
        self._held = held
        self._repair: Repair = repairs.find(record.repair)

    def go(self) -> None:
        """Look, and where there is something to do and no rule against it, do it."""
        names = [node.name for node in self._site.nodes]
        if self._record.limit not in (None, *names):
            raise NotFoundError(f"the site has no node {self._record.limit}", where="--limit", hint="see `site.yml`")
        seen = self._look()
        sick = [name for name in names if name in seen.sick and self._record.limit in (None, name)]
        self._record.sick = sick
        if not sick:
            self._end_well(seen)
            return
        unhealthy = seen.unhealthy | (set() if self._repair.spreads else seen.sick.keys())
        _refuse(rules.of_share(unhealthy, len(names), self._site.repair.repair_max_unhealthy_percentage))
        for name in sick:
            if not self._record.dry_run:
                _refuse(
                    rules.of_tries(self._repair, name, self._records.tries(self._repair.id, name), datetime.now(UTC))
                )
            self._repair_node(name, seen.sessions.get(name))
        self._record.state = RunState.REHEARSED if self._record.dry_run else RunState.REPAIRED

    def _look(self) -> Seen:
        seen = Seen()
        result = self._play(Recorder(self._record, self._keep, seen), {"site_only_look": True}, check=True)
        seen.unhealthy |= set(result.failed())
        return seen

    def _end_well(self, seen: Seen) -> None:
        """Say that nobody has the symptom; a node that does not answer may have it, and one may have another."""
        unhealthy = sorted(name for name in seen.unhealthy if self._record.limit in (None, name))
        silent = [name for name in unhealthy if name not in seen.answered]
        if silent:
            raise ConflictError(
                f"{', '.join(silent)} cannot be reached, so nothing can be repaired there",
                where=self._repair.id,
                hint="check that the node is up and that SSH from this machine reaches it",
            )
        if unhealthy:
            found = (f"{name} is not well: {seen.stopped.get(name, 'a look at it failed')}" for name in unhealthy)
            raise ConflictError(
                f"{'; '.join(found)}; that is not what is repaired here",
                where=self._repair.id,
                hint=f"run {repairs.REPAIR_OF['service']}, which starts what does not run",
            )
        self._record.state = RunState.HEALTHY

    def _repair_node(self, name: str, sessions: list[str] | None) -> None:
        """Climb the ladder on one node; raises PenstockError where it did not help."""
        reboot, agreed = self._site.repair.reboot, self._record.agreed
        forbidden = rules.forbidden(self._repair, reboot=reboot, sessions=sessions, agreed=agreed)
        if not self._record.dry_run:
            self._record.tried.append(name)
            self._record.tried_at[name] = moment()
            self._keep()
        recorder = Recorder(self._record, self._keep)
        self._play(
            recorder, {"repair_forbidden": forbidden}, check=self._record.dry_run, limit=[name]
        ).require_success()

    def _play(self, listen: Recorder, variables: Variables, **options: Any) -> playbook.Result:
        hosts = inventory.build(self._site, version=version("penstock"), state=str(self._state))
        hosts["all"]["vars"].update(variables)
        result = playbook.run(
            self._repair.playbook,
            hosts,
            state=self._state,
            listen=listen,
            publish=[SYMPTOM],
            together=False,
            held=self._held,
            **options,
        )
        self._record.log = str(result.log)
        self._keep()
        return result

    def _keep(self) -> None:
        self._records.keep(self._record)


class Seen:
    """What the first look found: evidence of the symptom and of services that stopped by node, and more."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sick: dict[str, str] = {}
        self.stopped: dict[str, str] = {}
        self.unhealthy: set[str] = set()
        self.answered: set[str] = set()
        self.sessions: dict[str, list[str] | None] = {}

    def note(self, node: str, said: Mapping[str, Any]) -> None:
        """Take in what was seen of a node."""
        self.answered.add(node)
        if said["name"] == OF_NODES:
            self.sessions[node] = said["sessions"]
            if not said["ok"]:
                self.unhealthy.add(node)
                self.stopped[node] = said["evidence"]
        elif not said["ok"]:
            self.sick[node] = said["evidence"]


class Recorder:
    """Writes what Ansible does into the record: a look is a step, and so is a rung with the look after it."""

    def __init__(self, record: Record, keep: Callable[[], None], seen: Seen | None = None) -> None:
        """Write into `record`, and `keep` it; `seen` takes in what was looked at."""
        self._record = record
        self._keep = keep
        self._seen = seen
        self._open: dict[str, Step] = {}
        self._since: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Take one event."""
        step = self._step(event.node)
        if said := event.published.get(SYMPTOM):
            self._close(step, said)
        elif event.outcome in (Outcome.CHANGED, Outcome.FAILED, Outcome.UNREACHABLE):
            step.tasks.append(f"{event.task}: {event.outcome}" + (f": {event.reason}" if event.reason else ""))
            if step not in self._record.steps:
                self._record.steps.append(step)
            self._keep()

    def _step(self, node: str) -> Step:
        if node not in self._open:
            self._open[node] = Step(node, moment())
            self._since[node] = time.monotonic()
        return self._open[node]

    def _close(self, step: Step, said: Mapping[str, Any]) -> None:
        step.rung, step.ok, step.evidence = said["rung"], said["ok"], said["evidence"]
        step.seconds = round(time.monotonic() - self._since[step.node], 1)
        if self._seen:
            self._seen.note(step.node, said)
        # what runs on all nodes goes into no record unless it does not
        if (said["name"] != OF_NODES or not step.ok) and step not in self._record.steps:
            self._record.steps.append(step)
        del self._open[step.node]
        self._keep()


def _refuse(problem: Problem | None) -> None:
    if problem:
        raise ConflictError.of([problem])
