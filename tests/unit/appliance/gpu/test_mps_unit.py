"""The unit of the multi-process service, whose shell lines are run with a program in the place of the real one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[4] / "roles/node_agent/templates/etc/systemd/system/penstock-mps@.service.j2"
CONTROL = "/usr/bin/nvidia-cuda-mps-control"


def command(name: str, control: Path) -> list[str]:
    """A line of the unit as systemd runs it."""
    (line,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    shell, script = re.fullmatch(r"(/bin/sh) -c '(.*)'", line).groups()  # type: ignore[union-attr]
    return [shell, "-c", script.replace("$$", "$").replace(CONTROL, str(control))]


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """A program that writes down what it is told, and has the help of a file."""
    program = tmp_path / "control"
    script = (
        f'#!/bin/sh\n[ "$1" = -h ] && exec cat {tmp_path}/help\n{{ echo "$@"; [ -t 0 ] || cat; }} >{tmp_path}/told\n'
    )
    program.write_text(script)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("help_", "options"), [("  -d,--daemon\n  -M,--multiuser-server  Enable\n", "-d -M\n"), ("  -d\n  -f\n", "-d\n")]
)
def test_it_serves_all_users_where_the_driver_can(tmp_path: Path, control: Path, help_: str, options: str) -> None:
    (tmp_path / "help").write_text(help_)
    subprocess.run(command("ExecStart", control), check=True, stdin=subprocess.DEVNULL, timeout=10)
    assert (tmp_path / "told").read_text() == options


def test_it_ends_though_programs_use_it(tmp_path: Path, control: Path) -> None:
    subprocess.run(command("ExecStop", control), check=True, timeout=10)
    assert (tmp_path / "told").read_text() == "\nquit -t 5\n"
    (longest,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(longest) > 5


def test_it_is_started_again_at_once_however_it_ended_for_without_it_there_is_no_limit() -> None:
    said = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert (said["Restart"], said["StartLimitIntervalSec"]) == ("always", "0")
    assert said["RestartSec"].endswith("ms")
