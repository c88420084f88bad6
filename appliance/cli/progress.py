"""Progress of long work: a live table on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from appliance.site.deployment import DeployListener
from appliance.site.playbook import Counts, Event, Outcome

PERCENT_STEP = 20
COLOURS = {Outcome.CHANGED: "yellow", Outcome.FAILED: "red", Outcome.UNREACHABLE: "red"}


class Screen(DeployListener):
    """Base of both ways to show progress; a context, so that a live table is put away at the end."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End to show."""


def screen() -> Screen:
    """Return the way to show progress that fits standard error."""
    return LiveScreen() if sys.stderr.isatty() else PlainScreen()


class PlainScreen(Screen):
    """One line a phase, a changed or a failed task, for logs and pipes."""

    def __init__(self) -> None:
        self._phase = ""
        self._begin = time.monotonic()
        self._percent: tuple[str, int] = ("", 0)

    def phase(self, name: str) -> None:
        """Write that a phase begins."""
        if name != self._phase:
            self._phase = name
            self._say(f"[{time.monotonic() - self._begin:6.1f} s] {name}")

    def progress(self, step: str, done: int = 0, total: int = 0) -> None:
        """Write a line when a step begins and at every fifth of it."""
        percent = done * 100 // total // PERCENT_STEP * PERCENT_STEP if total else 0
        if (step, percent) != self._percent:
            self._percent = (step, percent)
            self._say(f"             {step}" + (f" {percent} %" if total else ""))

    def event(self, event: Event) -> None:
        """Write what changes and what fails."""
        self.phase(event.phase)
        if event.outcome in COLOURS:
            self._say(f"             {event.node}: {event.task}: {event.outcome}")

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class LiveScreen(Screen):
    """A table with a row a node that says what it does now, below the phases that are done."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._phase = ""
        self._since = time.monotonic()
        self._step = ""
        self._counts: dict[str, Counts] = {}
        self._now: dict[str, Text] = {}
        self._live = Live(console=self._console, refresh_per_second=8, get_renderable=self._render)

    def __enter__(self) -> Self:
        """Show the table."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state of the table on the terminal."""
        self._end_phase("stopped" if kind else "done")
        self._step = ""
        self._live.stop()

    def phase(self, name: str) -> None:
        """Put the former phase among those that are done."""
        if name != self._phase:
            self._end_phase("done")
            self._phase, self._since, self._step = name, time.monotonic(), ""

    def progress(self, step: str, done: int = 0, total: int = 0) -> None:
        """Show how far a step is."""
        self._step = f"{step} {done * 100 // total} %" if total else step

    def event(self, event: Event) -> None:
        """Show what a node does."""
        self.phase(event.phase)
        counts = self._counts.setdefault(event.node, Counts())
        self._now[event.node] = Text(event.task, style=COLOURS.get(event.outcome, ""))
        if event.outcome in (Outcome.OK, Outcome.CHANGED):
            counts.ok += 1
        if event.outcome is Outcome.CHANGED:
            counts.changed += 1
        if event.outcome in (Outcome.FAILED, Outcome.UNREACHABLE):
            counts.failed += 1

    def _end_phase(self, word: str) -> None:
        if self._phase:
            self._console.print(f"{time.monotonic() - self._since:8.1f} s  {self._phase}: {word}")
            self._phase = ""

    def _render(self) -> Group:
        table = Table("NODE", "TASK", "OK", "CHANGED", "FAILED", box=None, pad_edge=False)
        for node, counts in sorted(self._counts.items()):
            table.add_row(node, self._now[node], str(counts.ok), str(counts.changed), str(counts.failed))
        head = f"{time.monotonic() - self._since:8.1f} s  {self._phase} {self._step}" if self._phase else ""
        return Group(Text(head), table) if self._counts else Group(Text(head))
