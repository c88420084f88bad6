"""Services that run something older than what is on the disk: program, files, or unit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.role_modules import role_module

stale = role_module("restarts/library/stale_services.py")

SHOWN = """\
ActiveState={state}
ActiveEnterTimestamp=@{active}
ExecMainStartTimestamp={started}
MainPID=0
FragmentPath={unit}
DropInPaths=
NeedDaemonReload={reload}
"""


def shown(unit: Path, *, state: str = "active", active: int = 0, started: str = "", reload: str = "no") -> str:
    return SHOWN.format(state=state, active=active, started=started, unit=unit, reload=reload)


@pytest.mark.parametrize(("started", "newer"), [(999, True), (1000, False), (1001, False)])
def test_files_that_changed_after_a_service_started(tmp_path: Path, started: int, newer: bool) -> None:
    """systemd tells whole seconds, so what changed within the second of the start counts as before it."""
    unit, settings = tmp_path / "one.service", tmp_path / "one.env"
    for path in (unit, settings):
        path.touch()
    os.utime(unit, (500, 500))
    os.utime(settings, (1000.5, 1000.5))
    text = shown(unit, active=2000, started=f"@{started}")
    found = stale.running("one.service", [str(tmp_path / "*.env"), "/missing/*"], lambda *_: (0, text))
    assert found == {"since": started, "newer": [str(settings)] if newer else [], "replaced": False}


def test_a_service_that_was_reloaded_has_read_its_files_and_not_its_unit(tmp_path: Path) -> None:
    unit, settings = tmp_path / "one.service", tmp_path / "one.conf"
    for path in (unit, settings):
        path.touch()
        os.utime(path, (1500, 1500))
    text = shown(unit, active=1000, started="@1000") + "StateChangeTimestamp=@2000\n"
    found = stale.running("one.service", [str(settings)], lambda *_: (0, text))
    assert found == {"since": 1000, "newer": [str(unit)], "replaced": False}


def test_when_a_service_is_to_come_back_asks_for_no_restart(tmp_path: Path) -> None:
    unit, drop_in = tmp_path / "one.service", tmp_path / "restart.conf"
    for path in (unit, drop_in):
        path.touch()
    os.utime(unit, (500, 500))
    text = shown(unit, active=1000, started="@1000").replace("DropInPaths=", f"DropInPaths={drop_in}")
    assert stale.running("one.service", [], lambda *_: (0, text)) == {"since": 1000, "newer": [], "replaced": False}


def test_a_unit_that_systemd_has_not_read_again(tmp_path: Path) -> None:
    unit = tmp_path / "one.service"
    text = shown(unit, active=1000, reload="yes")
    assert stale.running("one.service", [], lambda *_: (0, text)) == {
        "since": 1000,
        "newer": [str(unit)],
        "replaced": False,
    }


def test_a_timer_has_no_process_of_its_own(tmp_path: Path) -> None:
    text = shown(tmp_path / "one.timer", active=1000).replace("ExecMainStartTimestamp=\nMainPID=0\n", "")
    assert stale.running("one.timer", [], lambda *_: (0, text)) == {"since": 1000, "newer": [], "replaced": False}


def test_a_service_that_does_not_run_runs_nothing_old(tmp_path: Path) -> None:
    text = shown(tmp_path / "one.service", state="inactive")
    assert stale.running("one.service", [], lambda *_: (0, text)) is None


@pytest.mark.parametrize(("program", "replaced"), [("/usr/sbin/nginx", False), ("/usr/sbin/nginx (deleted)", True)])
def test_a_program_whose_file_was_replaced(tmp_path: Path, program: str, replaced: bool) -> None:
    (tmp_path / "exe").symlink_to(program)
    assert stale.replaced(tmp_path / "exe") is replaced
    assert stale.replaced(tmp_path / "missing") is False
