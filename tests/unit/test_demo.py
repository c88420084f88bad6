"""The demo's own rules: the main job decides how it ends and its figures do not; it waits for states, not for times."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import demo, journey
from tests.lab.journey import CommandError, Journey

Answer = subprocess.CompletedProcess[str]


class Scripted(Journey):
    """A journey whose commands are answered one after the other; the last answer stays."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(Path("site.yml"), bundles=Path("bundles"))
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    def try_penstock(self, *arguments: str | Path, stdin: str | None = None) -> Answer:
        self.asked.append(tuple(map(str, arguments)))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def said(value: Any) -> Answer:
    return subprocess.CompletedProcess((), 0, json.dumps(value), "")


def refused(code: int, error: str = "error: no") -> Answer:
    return subprocess.CompletedProcess((), code, "", error)


def one(state: str, name: str = "first", reason: str = "") -> dict[str, str]:
    return {"id": f"id-of-{name}", "name": name, "state": state, "reason": reason}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Seconds that pass only by waiting, on an idle machine."""
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(time, "sleep", lambda step: seconds.__setitem__(0, seconds[0] + step))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return lambda: seconds[0]


def test_figures_that_cannot_be_taken_are_said_and_decide_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    demo.measure(Scripted(refused(6, "error: team-a has no session bench-0")))
    out = capsys.readouterr().out.splitlines()
    assert out == [
        f"   {figure}: not measured (penstock list -o json exited 6: error: team-a has no session bench-0)"
        for figure in ("submit to RUNNING", "penstock list")
    ]


def test_one_figure_that_cannot_be_taken_leaves_the_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_journey: Journey) -> float:
        raise KeyError("started_at")

    monkeypatch.setitem(demo.FIGURES, "submit to RUNNING", broken)
    demo.measure(Scripted(said([])))
    first, second = capsys.readouterr().out.splitlines()
    assert first == "   submit to RUNNING: not measured ('started_at')"
    assert second.startswith("   penstock list, median of 10: 0.")


def test_a_failure_of_the_main_job_decides(clock: Callable[[], float]) -> None:
    way = Scripted(refused(7, "error: the session exists"))
    with pytest.raises(CommandError, match=r"submit first .* exited 7: error: the session exists"):
        way.three_for_two()


def test_what_is_ending_while_it_is_listed_is_waited_for(clock: Callable[[], float]) -> None:
    way = Scripted(said([one("TERMINATING")]), said([]), said([one("TERMINATING")]), said([]))
    way.clear()
    listing = ("list", "-o", "json")
    assert way.asked == [listing, ("delete", "id-of-first"), listing, listing]


class TestWaiting:
    def test_ends_with_the_state(self, clock: Callable[[], float]) -> None:
        Scripted(said([]), said([one("PENDING")]), said([one("RUNNING")])).until_states({"first": "RUNNING"}, "it runs")
        assert clock() == pytest.approx(2 * journey.STEP_S)

    def test_goes_on_while_the_api_is_away(self, clock: Callable[[], float]) -> None:
        Scripted(refused(5), said([one("RUNNING")])).until_states({"first": "RUNNING"}, "it runs")
        assert clock() == pytest.approx(journey.STEP_S)

    def test_ends_with_any_other_error(self, clock: Callable[[], float]) -> None:
        with pytest.raises(CommandError, match="exited 8"):
            Scripted(refused(8)).until_states({}, "nothing is left")

    def test_ends_with_a_session_that_failed(self, clock: Callable[[], float]) -> None:
        way = Scripted(said([one("FAILED", reason="its command ended with exit code 1")]))
        with pytest.raises(
            RuntimeError, match="session first failed before it runs: its command ended with exit code 1"
        ):
            way.until_states({"first": "RUNNING"}, "it runs")
        assert clock() == 0

    @pytest.mark.parametrize(("load", "times"), [(0.5, 1), (2, 1), (8, 4)])
    def test_takes_longer_on_a_busy_machine(
        self, clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch, load: float, times: int
    ) -> None:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        with pytest.raises(TimeoutError, match="until it runs"):
            Scripted(said([])).until_states({"first": "RUNNING"}, "it runs")
        assert clock() == pytest.approx(times * journey.DEADLINE_S, abs=2 * journey.STEP_S)


@pytest.mark.parametrize(("code", "becomes_first"), [(9, True), (5, False), (10, False)])
def test_the_first_password_is_for_who_is_not_known_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, becomes_first: bool
) -> None:
    """An API that does not answer says nothing of a password; the one that was chosen stays."""
    (tmp_path / "admin-password").write_text("chosen\n")
    monkeypatch.setattr(Scripted, "lab", {"api": "https://m:1", "ca": str(tmp_path / "ca.crt")})
    monkeypatch.setattr(Scripted, "first_password", "first")
    way = Scripted(refused(code), said({}))
    if becomes_first:
        way.login()
    else:
        with pytest.raises(CommandError, match=f"exited {code}"):
            way.login()
    assert (way.own_password.read_text() != "chosen\n") is becomes_first
