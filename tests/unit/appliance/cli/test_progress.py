"""How long work shows on standard error."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from appliance.cli import progress
from appliance.site.playbook import Event, Outcome


def event(outcome: Outcome, phase: str = "Time", node: str = "w1") -> Event:
    return Event(phase, node, "Install chrony", outcome)


def test_plain_lines_tell_phases_changes_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.PlainScreen() as screen:
        screen.phase("bundle")
        for done in range(0, 101, 5):
            screen.progress("import", done, 100)
        screen.progress("publish")
        for outcome in Outcome:
            screen.event(event(outcome))
        screen.event(event(Outcome.OK, phase="Edge"))
    out, err = capsys.readouterr()
    assert out == ""
    lines = [re.sub(r"\[ *[\d.]+ s\]", "[s]", line).strip() for line in err.splitlines()]
    assert lines == [
        "[s] bundle",
        *(f"import {percent} %" for percent in (0, 20, 40, 60, 80, 100)),
        "publish",
        "[s] Time",
        "w1: Install chrony: changed",
        "w1: Install chrony: failed",
        "w1: Install chrony: unreachable",
        "[s] Edge",
    ]


def test_a_terminal_gets_a_table_below_the_phases_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    with progress.LiveScreen() as screen:
        screen.phase("bundle")
        screen.progress("import", 1, 2)
        for outcome in (Outcome.STARTED, Outcome.CHANGED, Outcome.OK, Outcome.FAILED):
            screen.event(event(outcome))
    text = console.export_text()
    assert re.search(r"[\d.]+ s  bundle: done", text)
    assert re.search(r"[\d.]+ s  Time: done", text)
    assert re.search(r"w1 +Install chrony +2 +1 +1", text)


def test_an_error_ends_the_phase_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    screen = progress.LiveScreen()
    screen.phase("bundle")
    with pytest.raises(ZeroDivisionError), screen:
        raise ZeroDivisionError
    assert "bundle: stopped" in console.export_text()
