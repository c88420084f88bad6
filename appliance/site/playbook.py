"""Playbooks and their runs; the only module that knows ansible-runner.

What Ansible says becomes typed events while it runs and one `Result` at the end. The log of every run stays in the
state folder, readable by its owner only.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from ansible_runner import interface

from appliance.site import refused_access, settings
from appliance.site.alone import Alone
from appliance.site.foreseen import Foreseen, Foresight
from common.errors import Problem, ProcessError, UnavailableError

RUNS_KEPT = 20
TAIL_LINES = 15
UNREACHABLE_HINT = "check that the node is up and that SSH from this machine reaches it, then run the command again"
FAILED_HINT = "mend the cause, then run the command again: what is done already stays and costs little"

HINT_MARK = " Hint: "

LIMIT = "this_run"
"""The group of the nodes that a run goes to; no node can have that name."""

OUTLIVED = """\
"$@" 2>&1 | {
    cat && exit
    grep --max-count=1 --extended-regexp '(TASK|HANDLER|PLAY|PLAY RECAP) [[*]'
    kill -TERM 0
} 2>/dev/null
"""
"""Reads what Ansible says when the terminal that ansible-runner gave it is gone, as that of a command that was killed.

Without a reader Ansible waits for ever for the results of its tasks. It ends its present task, and no other one begins.
"""


class Outcome(StrEnum):
    """What became of a task on a node."""

    STARTED = "started"
    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Event:
    """One step of a playbook on one node.

    `phase` is the name of the play, `reason` says why it failed, `published` has the values that it handed out.
    """

    phase: str
    node: str
    task: str
    outcome: Outcome
    reason: str = ""
    published: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass
class Counts:
    """How many tasks ended how on one node."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    unreachable: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both."""
        return Counts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


@dataclass
class Result:
    """What came of a playbook.

    `nodes` counts tasks by node, `changes` names those that changed it, `phases` are seconds by the name of the play,
    `failures` are the events that broke it, `published` holds the values that tasks handed out under the names asked
    for, by node, `log` is the file with Ansible's own words, `said` its end. `foreseen` is what a dry run that was
    asked for differences said of each task that would change its node.
    """

    playbook: str
    log: Path
    code: int = 0
    nodes: dict[str, Counts] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    failures: list[Event] = field(default_factory=list)
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    said: str = ""
    foreseen: dict[str, list[Foreseen]] = field(default_factory=dict)

    def require_success(self) -> None:
        """Raise ProcessError that names node, task, reason and next step of everything that failed."""
        if self.code == 0:
            return
        if self.failures:
            raise ProcessError.of([_problem(event, self.log) for event in self.failures])
        raise ProcessError(
            f"ansible-playbook ended with code {self.code}:\n  {self.said}",
            where=self.playbook,
            hint=f"its whole output is in {self.log}",
        )

    def hidden(self, node: str) -> int:
        """Return how many tasks changed a node without a name: of those that handle a secret Ansible counts no more."""
        return self.nodes.get(node, Counts()).changed - len(self.changes.get(node, ()))

    def failed(self) -> dict[str, list[Problem]]:
        """Return what went wrong on each node that failed; raises ProcessError where the run itself did."""
        broken = [name for name, counts in self.nodes.items() if counts.failed or counts.unreachable]
        if not broken:
            self.require_success()
        return {name: [_problem(event, self.log) for event in self.failures if event.node == name] for name in broken}


Listener = Callable[[Event], None]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Give back what ansible-runner puts in place of the handlers of signals: with that a process would never end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@_signals_kept()
def run(
    playbook: str,
    inventory: Mapping[str, Any],
    *,
    state: Path,
    listen: Listener,
    publish: Collection[str] = (),
    check: bool = False,
    diff: bool = False,
    limit: Collection[str] | None = None,
    together: bool = True,
    held: Alone | None = None,
) -> Result:
    """Run `playbooks/<playbook>.yml` on the nodes of `inventory` and return what came of it, failed or not.

    `state` is the folder for inventory and logs, `publish` names the values that tasks hand out, `check` only says
    what would change, and `diff` how. Of the nodes, only those in `limit` are changed. Where one fails, all others
    stop with it if they go `together`; else that one alone is left out of what follows.
    """
    root = settings.ansible_root()
    folder = _run_folder(state, playbook)
    # that of the last deploy stays: what a dry run asks may never come to be
    hosts = _write_private((folder if check else state) / "hosts.json", json.dumps(inventory, indent=1))
    inventories = [root / "inventory" / "groups.yml", hosts]
    if limit is not None:
        inventories.append(_write_private(folder / "limit.json", json.dumps(_group(limit))))
    artifacts = folder / "ansible"
    log = artifacts / "stdout"
    explain = partial(_explained, hosts=inventory["all"].get("hosts", {}), known_hosts=state / "known_hosts")
    collector = _Collector(Result(playbook, log=log), listen, frozenset(publish), explain)
    words = [word for word, wanted in (("--check", check), ("--diff", diff)) if wanted]
    runner = interface.init_runner(
        private_data_dir=str(folder),
        project_dir=str(root),
        artifact_dir=str(folder),
        ident="ansible",
        playbook=str(Path("playbooks") / f"{playbook}.yml"),
        inventory=[str(path) for path in inventories],
        limit=None if limit is None else LIMIT,
        cmdline=" ".join(words) or None,
        envvars={
            "ANSIBLE_CONFIG": str(root / "ansible.cfg"),
            "ANSIBLE_ANY_ERRORS_FATAL": str(together),
            "ANSIBLE_HOME": str(state / "ansible"),
            # ansible-runner takes every host key unless it is told otherwise, and then a changed one is not refused
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
            # with it Python reads each module that comes to this machine byte by byte: a third more work for all
            "PYTHONUNBUFFERED": "",
            "PATH": settings.search_path(),
        },
        suppress_env_files=True,
        event_handler=collector.take,
        quiet=True,
    )
    outlived = ["bash", "-o", "pipefail", "-c", OUTLIVED, "bash"]
    runner.config.command = [*(held.command(log) if held else ()), *outlived, *runner.config.command]
    runner.run()
    if held:
        held.tell()
    if check:
        hosts.unlink()
    # ansible-runner notes the caller's whole environment there, which may hold secrets.
    (artifacts / "command").unlink(missing_ok=True)
    if runner.status == "canceled":
        raise KeyboardInterrupt
    return collector.finish(runner.rc)


class _Collector:
    """Turns ansible-runner's events into ours and into the result."""

    def __init__(
        self, result: Result, listen: Listener, publish: frozenset[str], explain: Callable[[str, str], str]
    ) -> None:
        self._result = result
        self._explain = explain
        self._listen = listen
        self._publish = publish
        self._phase = ""
        self._since = time.monotonic()
        self._foresight = Foresight(result.foreseen)

    def take(self, raw: dict[str, Any]) -> bool:
        """Take one event; returns False so that ansible-runner does not store it as a file of its own."""
        kind, data = raw.get("event", ""), raw.get("event_data", {})
        if kind == "playbook_on_play_start":
            self._begin_phase(data.get("name") or data.get("play") or "")
        elif kind == "playbook_on_stats":
            self._count(data)
        elif kind == "playbook_on_task_start":
            self._foresight.handler(data)
        elif outcome := _outcome(kind, data):
            self._foresight.take(self._phase, kind, data)
            self._note(outcome, data)
        return False

    def finish(self, code: int) -> Result:
        """Return the result of a run that ended with `code`."""
        self._begin_phase("")
        self._result.code = code
        if self._result.log.is_file():
            lines = self._result.log.read_text(errors="replace").splitlines()
            self._result.said = "\n  ".join(lines[-TAIL_LINES:])
        return self._result

    def _begin_phase(self, name: str) -> None:
        now = time.monotonic()
        if self._phase:
            phases = self._result.phases
            phases[self._phase] = round(phases.get(self._phase, 0.0) + now - self._since, 2)
        self._phase, self._since = name, now

    def _note(self, outcome: Outcome, data: dict[str, Any]) -> None:
        result = data.get("res") or {}
        node, task = data.get("host", ""), data.get("task", "")
        broken = outcome in (Outcome.FAILED, Outcome.UNREACHABLE)
        published = {name: result[name] for name in self._publish & result.keys()}
        reason = self._explain(_reason(result), node) if broken else ""
        event = Event(self._phase, node, task, outcome, reason, published)
        if broken:
            self._result.failures.append(event)
        if outcome is Outcome.CHANGED:
            self._result.changes.setdefault(node, []).append(task)
        if published:
            self._result.published.setdefault(node, {}).update(published)
        self._listen(event)

    def _count(self, data: dict[str, Any]) -> None:
        columns = {name: Counter(data.get(name) or {}) for name in ("ok", "changed", "skipped", "failures", "dark")}
        for node in sorted(set().union(*columns.values())):
            self._result.nodes[node] = Counts(
                ok=columns["ok"][node],
                changed=columns["changed"][node],
                skipped=columns["skipped"][node],
                failed=columns["failures"][node],
                unreachable=columns["dark"][node],
            )


def _outcome(kind: str, data: dict[str, Any]) -> Outcome | None:
    """Return what an event of ansible-runner means; None for those that say nothing about a task on a node."""
    if kind == "runner_on_ok":
        return Outcome.CHANGED if (data.get("res") or {}).get("changed") else Outcome.OK
    if kind == "runner_on_failed":
        return Outcome.OK if data.get("ignore_errors") else Outcome.FAILED
    return {
        "runner_on_start": Outcome.STARTED,
        "runner_on_skipped": Outcome.SKIPPED,
        "runner_on_unreachable": Outcome.UNREACHABLE,
    }.get(kind)


def _reason(result: Mapping[str, Any]) -> str:
    """Return why a task failed, from the first of its items that did, with the end of what the program said."""
    for item in result.get("results") or ():
        if item.get("failed"):
            return _reason(item)
    if "censored" in result:
        return "it failed, and what it said is hidden because it handles a secret"
    message = str(result.get("msg") or "no reason was given").strip()
    said = str(result.get("stderr") or result.get("module_stderr") or result.get("stdout") or "").strip()
    if not said or said in message:
        return message
    return message + ": " + "\n  ".join(said.splitlines()[-TAIL_LINES:])


def _explained(reason: str, node: str, hosts: Mapping[str, Any], known_hosts: Path) -> str:
    """Return a reason, and where it is one of refused access, the cause with its hint instead."""
    found = refused_access.explained(reason, node, hosts.get(node) or {}, str(known_hosts))
    return HINT_MARK.join(found) if found else reason


def _problem(event: Event, log: Path) -> Problem:
    general = UNREACHABLE_HINT if event.outcome is Outcome.UNREACHABLE else FAILED_HINT
    # A role that knows the hint says it in its message.
    reason, _, known = event.reason.partition(HINT_MARK)
    hint = known.rstrip(".") or general
    return Problem(f"{event.node}: {event.phase}: {event.task}", reason.rstrip(". "), f"{hint} (log: {log})")


def _run_folder(state: Path, playbook: str) -> Path:
    """Return a new folder for one run, and forget the oldest runs."""
    runs = state / "runs"
    folder = runs / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{playbook.replace('/', '-')}"
    try:
        # `parents` alone would open those above to all
        for each in (state, runs, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=each != folder)
    except OSError as error:
        raise UnavailableError(
            f"the log of the run cannot be written: {error.strerror}",
            where=str(folder),
            hint="run as root, with room on the disk",
        ) from error
    for old in sorted(runs.iterdir())[:-RUNS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _group(names: Collection[str]) -> dict[str, Any]:
    return {"all": {"children": {LIMIT: {"hosts": {name: {} for name in names}}}}}


def _write_private(path: Path, text: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path
