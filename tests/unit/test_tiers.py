"""The table at the end of `make test`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tools import tiers
from tools.tiers import Cores, Row, Run, Tier, main, read, reasons, table

REPORT = """\
<testsuites><testsuite>
<testcase classname="tests.unit.test_one" name="test_slow[a]" time="12.5" />
<testcase classname="tests.unit.test_one" name="test_fast" time="0.001">
<failure message="assert 1 == 2&#10;  in a">trace</failure>
</testcase>
<testcase classname="tests.unit.test_one" name="test_fixture" time="0.5"><error>no database</error></testcase>
</testsuite></testsuites>
"""


def test_a_report_gives_the_seconds_of_each_test_and_why_those_failed_that_did(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(REPORT)
    seconds, failures = read(report)
    assert {name.removeprefix("tests.unit.test_one::"): each for name, each in seconds.items()} == {
        "test_slow[a]": 12.5,
        "test_fast": 0.001,
        "test_fixture": 0.5,
    }
    assert failures == {
        "tests.unit.test_one::test_fast": "assert 1 == 2 in a",
        "tests.unit.test_one::test_fixture": "no database",
    }


@pytest.mark.parametrize("written", ["", REPORT[:-40]])
def test_a_report_that_was_not_written_to_its_end_gives_nothing(tmp_path: Path, written: str) -> None:
    """Pytest was killed meanwhile: the run's table comes all the same."""
    report = tmp_path / "unit.xml"
    report.write_text(written)
    assert read(report) == ({}, {})


def test_a_run_ends_with_what_failed_and_why() -> None:
    seconds = {f"test_{number}": 1.0 for number in range(20)}
    failed = {f"test_{number}": "x" * 1000 for number in range(12)}
    tiers = [Tier("types", 1.0, True, {}, said=("all well",)), Tier("unit", 1.0, False, seconds, failed, ("dots",))]
    first, *lines = reasons(tiers)
    assert first == "unit failed: 12 of 20 tests"
    assert [line.split(":")[0].strip() for line in lines] == [f"test_{number}" for number in range(10)]
    assert all(len(line) < 250 for line in lines)


def test_a_tier_that_failed_without_a_test_is_told_by_its_last_lines() -> None:
    assert list(reasons([Tier("lint", 1.0, False, {}, said=("ruff:", "no"))])) == [
        "lint failed: 0 of 0 tests",
        "  ruff:",
        "  no",
    ]


def test_the_table_has_every_tier_its_ten_slowest_tests_and_the_time_of_all() -> None:
    tests = {f"test_{number}": float(number) for number in range(12)}
    tiers = [Tier("lint", 8.04, True, {}), Tier("unit", 60.0, False, tests, busy=0.754)]
    lines = [" ".join(line.split()) for line in table(tiers, 61.0)]
    assert lines[:2] == [
        "8.0 s lint, with 0% of all cores in use",
        "60.0 s 12 tests unit: failed, with 75% of all cores in use",
    ]
    assert lines[2:-1] == [f"{number}.0 s test_{number}" for number in range(11, 1, -1)]
    assert lines[-1] == "61.0 s together"


def test_cores_are_in_use_that_neither_idle_nor_wait_for_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["cpu  100 10 20 500 70 0 5 0 99 0", "cpu  160 10 40 510 80 0 5 0 150 0"])
    monkeypatch.setattr(Path, "read_text", lambda _: next(lines) + "\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert Cores.now().busy_until(Cores.now()) == pytest.approx(0.8)


MAKEFILE = """\
GROUP = /proc/self/autogroup
.PHONY: one other broken last apart slow
one:
\t@touch one; while [ ! -e other ]; do sleep 0.01; done; echo one is done
other:
\t@touch other; while [ ! -e one ]; do sleep 0.01; done; echo other is done
after:
\t@echo after one
broken:
\t@echo no; exit 1
last:
\t@echo never
apart:
\t@echo $$PYTEST_TIMEOUT; nice; ps -o sid= -p $$$$ | tr -d ' '
\t@while [ -e $(GROUP) ] && ! grep -q " nice 10$$" $(GROUP); do sleep 0.01; done
slow:
\t@touch begun; exec sleep 60
waits:
\t@touch waits; while [ ! -e comes ]; do sleep 0.01; done; echo it came
comes:
\t@while [ ! -e waits ]; do sleep 0.01; done; touch comes
breaks:
\t@while [ ! -e waits ]; do sleep 0.01; done; (sleep 0.2; touch comes) >/dev/null 2>&1 & exit 1
"""


@pytest.fixture
def makefile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "REPORTS", tmp_path)


def test_tiers_of_a_group_run_side_by_side(makefile: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["one,other"]) == 0
    assert {"one   | one is done", "other | other is done"} <= set(capfd.readouterr().out.splitlines())


def test_tiers_of_a_row_run_one_after_another(makefile: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["one+after,other"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said.index("one   | one is done") < said.index("after | after one")


def test_what_fails_ends_the_run_behind_its_group(makefile: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["one,broken,other", "last"]) == 1
    said = capfd.readouterr().out
    assert "one is done" in said
    assert "broken: failed" in said
    assert "never" not in said
    assert said.splitlines()[-3:-1] == ["broken failed: 0 of 0 tests", "  no"]


def test_a_row_that_gives_way_is_patient_in_a_session_of_its_own(
    makefile: None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["one,other", "~apart+after,one"]) == 0
    said = capfd.readouterr().out.splitlines()
    patience, nice, session = [line.removeprefix("apart | ") for line in said if "apart | " in line]
    assert (patience, nice) == ("1200", str(min(19, os.nice(0) + tiers.NICE)))
    assert int(session) != os.getsid(0)
    assert "after | after one" in said


def test_the_next_groups_do_not_wait_for_what_gives_way(makefile: None, capfd: pytest.CaptureFixture[str]) -> None:
    """It waits for them here."""
    assert main(["~waits+after", "comes"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said.index("waits | it came") < said.index("after | after one")


@pytest.mark.parametrize("first", ["~waits+last,breaks", "~broken+comes,waits"])
def test_nothing_begins_behind_a_group_beside_which_something_failed(
    makefile: None, capfd: pytest.CaptureFixture[str], first: str
) -> None:
    """What has begun is told of."""
    assert main([first, "last"]) == 1
    said = capfd.readouterr().out
    assert "it came" in said
    assert "never" not in said


@pytest.mark.parametrize("sigint", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def test_an_interrupted_run_leaves_nothing_that_gave_way(
    makefile: None, tmp_path: Path, sigint: Any, request: pytest.FixtureRequest
) -> None:
    """Nor does its row go on."""
    before = signal.signal(signal.SIGINT, sigint)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    run = Run([], 4)

    def interrupt() -> None:
        while not (run.apart and (tmp_path / "begun").exists()):
            time.sleep(0.01)
        run.end()

    thread = Thread(target=interrupt)
    thread.start()
    run.make_row(Row.of("~slow+last"))
    thread.join()
    (slow,) = run.made
    assert not slow.passed
