"""Mounts of ours that a container's programs see, and those that something else hides."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from appliance.agent.shares.mountinfo import read, verify
from common.errors import UnavailableError
from common.protocol import Mount

HERE = """\
20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 20 0:25 / /run rw,nosuid - tmpfs tmpfs rw
31 30 0:40 / /run/penstock/gpu/c1/account rw - tmpfs penstock rw
"""
ROOT = "100 90 0:70 / / rw,relatime - overlay overlay rw"
DEVICES = "101 100 0:71 / /dev rw,nosuid - tmpfs tmpfs rw"
LIBRARY = "102 100 8:1 /usr/lib/penstock/lib.so /usr/lib/penstock/lib.so ro,relatime - ext4 /dev/sda1 rw"
LIMITS = "103 100 0:25 /penstock/gpu/c1/limits /run/penstock/limits ro,nosuid - tmpfs tmpfs rw"
ACCOUNT = "104 100 0:40 /account /run/penstock/account/account rw - tmpfs penstock rw"
VOLUME = "105 100 0:90 /homes/alice /data rw - nfs4 server:/ rw"
WANTED = (
    Mount(source="/usr/lib/penstock/lib.so", target="/usr/lib/penstock/lib.so", read_only=True),
    Mount(source="/run/penstock/gpu/c1/limits", target="/run/penstock/limits", read_only=True),
    Mount(source="/run/penstock/gpu/c1/account/account", target="/run/penstock/account/account"),
)
SOUND = (ROOT, DEVICES, LIBRARY, LIMITS, ACCOUNT, VOLUME)


def check(folder: Path, *lines: str) -> None:
    """Verify the mounts of a container whose list has these lines."""
    for name, text in (("self", HERE), ("7", "\n".join(lines) + "\n")):
        (folder / name).mkdir()
        (folder / name / "mountinfo").write_text(text)
    verify(WANTED, 7, proc=folder)


def test_mounts_that_nothing_hides_hold(tmp_path: Path) -> None:
    check(tmp_path, *SOUND)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([*SOUND, VOLUME.replace("/data", "/run/penstock/limits")], "something else is mounted over it"),
        ([*SOUND, VOLUME.replace("/data", "/run/penstock")], "something else is mounted at /run/penstock"),
        ([*SOUND, VOLUME.replace("/data", "/run")], "something else is mounted at /run"),
        ([*SOUND, VOLUME.replace("/data", "/run/penstock/limits/limits")], "mounted at /run/penstock/limits/limits"),
        ([*SOUND, VOLUME.replace("/data", "/")], "something else is mounted at /"),
        ([ROOT, LIBRARY, ACCOUNT], "it is not mounted there"),
        ([ROOT, LIBRARY, ACCOUNT, LIMITS.replace("/c1/", "/c2/")], "it is not mounted there"),
        ([ROOT, LIBRARY, ACCOUNT, LIMITS.replace("0:25", "0:26")], "it is not mounted there"),
        ([ROOT, LIBRARY, ACCOUNT, LIMITS.replace("/run/p", "/var/run/p")], "it is not mounted there"),
        ([ROOT, LIBRARY, LIMITS.replace(" ro,", " rw,"), ACCOUNT], "it can be written"),
    ],
    ids=["over", "above", "higher", "in", "root", "absent", "another", "other device", "behind a link", "writable"],
)
def test_a_mount_that_does_not_hold_is_named(tmp_path: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason):
        check(tmp_path, *lines)


def test_neighbours_with_a_longer_name_hide_nothing(tmp_path: Path) -> None:
    check(tmp_path, *SOUND, VOLUME.replace("/data", "/run/penstock/limits-of-alice"))


def test_blanks_in_paths_are_read(tmp_path: Path) -> None:
    [found] = read(VOLUME.replace("/data", "/my\\040data"))
    assert str(found.point) == "/my data"


def test_a_container_that_has_ended_sees_nothing_that_could_be_wrong(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(HERE)
    verify(WANTED, 7, proc=tmp_path)
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        # it has ended, and nobody has noticed
        verify(WANTED, ended.pid)


def test_mounts_that_cannot_be_read_are_no_proof(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(HERE)
    (tmp_path / "7/mountinfo").mkdir(parents=True)
    with pytest.raises(UnavailableError, match="cannot be read"):
        verify(WANTED, 7, proc=tmp_path)
    verify((), 7, proc=tmp_path)
