"""Records of what root does on the controller, until the API has heard of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.site import commands
from common.errors import ConflictError, UnavailableError
from common.repair_protocol import MAX_COMMANDS

KILLED = """
import os, sys
from pathlib import Path
from appliance.site import commands
with commands.told("backup restore", "backups/newest", Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""


def test_a_command_is_told_when_it_is_over_and_forgotten_when_it_was_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    with commands.told("site deploy", "nodes", tmp_path):
        assert commands.over(tmp_path) == [], "it is not over"
    (told,) = commands.over(tmp_path)
    assert (told.command, told.object, told.by, told.ok, told.reason) == ("site deploy", "nodes", "ann", True, "")
    assert told.ended_at
    assert told.began_at <= told.ended_at
    assert (tmp_path / commands.FOLDER / f"{told.id}.json").stat().st_mode & 0o077 == 0
    commands.forget(tmp_path, [told])
    assert commands.over(tmp_path) == []


def test_one_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ConflictError), commands.told("backup now", "backups", tmp_path):
        raise ConflictError("a deploy is running", where="lock", hint="wait")
    with pytest.raises(ZeroDivisionError), commands.told("backup now", "backups", tmp_path):
        1 / 0  # noqa: B018
    with pytest.raises(KeyboardInterrupt), commands.told("backup now", "backups", tmp_path):
        raise KeyboardInterrupt
    reasons = [told.reason for told in commands.over(tmp_path)]
    assert "a deploy is running" in reasons[0]
    assert reasons[1:] == ["ZeroDivisionError: division by zero", "it was ended"]
    assert not any(told.ok for told in commands.over(tmp_path))


def test_one_that_was_killed_is_told(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False).returncode == -9
    (told,) = commands.over(tmp_path)
    assert (told.ok, told.reason, told.ended_at) == (False, commands.BROKEN_OFF, None)


def _fail_after(told: commands.Told) -> None:
    told.changed_nothing()
    raise ConflictError("a deploy is running", where="lock", hint="wait")


def test_one_that_changed_nothing_leaves_no_record_unless_it_failed(tmp_path: Path) -> None:
    with commands.told("site renew", "nodes", tmp_path) as told:
        told.changed_nothing()
    assert commands.over(tmp_path) == []
    with pytest.raises(ConflictError), commands.told("site renew", "nodes", tmp_path) as told:
        _fail_after(told)
    assert [each.command for each in commands.over(tmp_path)] == ["site renew"]


def test_what_cannot_be_noted_is_not_run(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "tmpfs", tmp_path], check=True)
    ran = False
    try:
        with pytest.raises(UnavailableError, match="is not run"), commands.told("site deploy", "nodes", tmp_path):
            ran = True
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert not ran


def test_the_state_of_a_bare_machine_is_roots_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with commands.told("backup unseal", "backups/newest", tmp_path / "site"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "site").stat().st_mode & 0o077 == 0


def test_no_more_is_told_than_a_message_takes_and_what_is_damaged_hinders_nothing(tmp_path: Path) -> None:
    for number in range(MAX_COMMANDS + 1):
        with commands.told("backup now", f"backups/{number}", tmp_path):
            pass
    (tmp_path / commands.FOLDER / "damaged.json").write_text('{"id":')
    told = commands.over(tmp_path)
    assert [each.object for each in told] == [f"backups/{number}" for number in range(MAX_COMMANDS)]
    commands.forget(tmp_path, told)
    assert [each.object for each in commands.over(tmp_path)] == [f"backups/{MAX_COMMANDS}"]
