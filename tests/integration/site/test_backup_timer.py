"""The timer of the backups under a real systemd: each day, and at once where a day was missed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from appliance.cli import backup
from tests.integration.edge import rendered
from tests.integration.reservoir.conftest import (  # noqa: F401
    Machine,
    node_image,
    node_images,
)
from tests.integration.site.booted import booted

UNITS = ("penstock-backup.service", "penstock-backup.timer")
HOUR = 3
WITHIN_S = 30
STAMP = "/var/lib/systemd/timers/stamp-penstock-backup.timer"
TOLD = "/root/told"


@pytest.fixture(scope="module")
def node(node_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:  # noqa: F811
    """A node with both units, on which the command writes down what it was asked for."""
    folder = tmp_path_factory.mktemp("node")
    for unit in UNITS:
        (folder / unit).write_text(rendered("backup", f"etc/systemd/system/{unit}", backup_hour=HOUR))
    (folder / "penstock").write_text(f'#!/bin/sh\necho "$@" as "$HOME" >> {TOLD}\n')
    (folder / "penstock").chmod(0o755)
    with booted(node_image, ["--volume", f"{folder}:/site:ro"]) as machine:
        machine.run(f"cp /site/*.service /site/*.timer /etc/systemd/system/; cp /site/penstock {command(folder)}")
        machine.run(f"systemctl daemon-reload; mkdir -p {Path(STAMP).parent}")
        yield machine


def command(folder: Path) -> str:
    """Return the program that the service runs."""
    return str(re.findall(r"^ExecStart=(\S+) ", (folder / UNITS[0]).read_text(), re.MULTILINE)[0])


def told(node: Machine) -> str:
    return node.run(f"cat {TOLD} 2>/dev/null; true")


def start_the_timer(node: Machine, last: str) -> None:
    """Start the timer as a boot does on a node whose last backup was then."""
    node.run(f"systemctl stop penstock-backup.timer; rm -f {TOLD}; touch --date='{last}' {STAMP}")
    node.run("systemctl start penstock-backup.timer")


def test_systemd_takes_the_units_as_they_are(node: Machine) -> None:
    assert node.run("systemd-analyze verify /etc/systemd/system/penstock-backup.timer") == ""
    assert "enabled" in node.run("systemctl enable penstock-backup.timer; systemctl is-enabled penstock-backup.timer")


def test_it_is_due_each_day_at_its_hour(node: Machine) -> None:
    start_the_timer(node, "now")
    (due,) = re.findall(
        r"OnCalendar=(.*?) ;", node.run("systemctl show --property=TimersCalendar penstock-backup.timer")
    )
    said = node.run(f"systemd-analyze calendar --iterations=4 '{due}'")
    moments = re.findall(rf"(\d{{4}}-\d\d-\d\d) {HOUR:02}:00:00", said)
    begin = node.run(f"date --date='{moments[0]}' +%F").strip()
    assert moments == [node.run(f"date --date='{begin} {day} days' +%F").strip() for day in range(4)]


def test_a_day_that_was_missed_is_made_up_for_at_once_and_no_other_is(node: Machine) -> None:
    start_the_timer(node, "now")
    time.sleep(3)
    assert told(node) == ""
    start_the_timer(node, "2 days ago")
    deadline = time.monotonic() + WITHIN_S
    while not (said := told(node)):
        assert time.monotonic() < deadline, node.run("systemctl status penstock-backup.timer penstock-backup; true")
        time.sleep(0.2)
    assert said == "backup now as /root\n"
    assert "Result=success" in node.run("systemctl show --property=Result penstock-backup.service")


def test_what_it_runs_is_a_command_of_the_product() -> None:
    said = CliRunner().invoke(backup.app, ["now", "--help"])
    assert said.exit_code == 0, said.output
