"""The folder of the log's archive on a machine whose mount is away: where a deploy would begin another archive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.tree import ROOT

NAMESPACE = """\
#!/bin/sh
exec unshare --mount sh -ec '
mount -t tmpfs none /mnt
mkdir -p /mnt/etc /mnt/work /mnt/wal
mount -t overlay none -o lowerdir=/etc,upperdir=/mnt/etc,workdir=/mnt/work /etc
mkdir -p /etc/penstock
{prepared}
exec /usr/bin/python3 "$@"' sh "$@"
"""
CONFIGURED = "echo repo1-path=/mnt/wal/lab-wal > /etc/penstock/wal-archive.conf"


@pytest.mark.parametrize(
    ("prepared", "refused"),
    [("", False), (CONFIGURED, True), (f"{CONFIGURED}; mkdir /mnt/wal/lab-wal", False)],
    ids=["first deploy", "mount is away", "as it was"],
)
def test_an_archive_that_was_there_is_not_begun_anew_where_its_mount_is_away(
    tmp_path: Path, prepared: str, refused: bool
) -> None:
    python = tmp_path / "python"
    python.write_text(NAMESPACE.format(prepared=prepared))
    python.chmod(0o755)
    known = {
        "ansible_python_interpreter": str(python),
        "wal_archive_to": "/mnt/wal",
        "wal_archive_site": "lab",
        "wal_archive_key": "k",
    }
    validate = {"name": "wal_archive", "tasks_from": "validate.yml"}
    tasks = [{"name": "Validate", "ansible.builtin.import_role": validate}]
    play = {"name": "Validate", "hosts": "localhost", "connection": "local", "gather_facts": False}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play | {"vars": known, "tasks": tasks}]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", str(tmp_path / "play.yml")]
    environment = {"ANSIBLE_ROLES_PATH": str(ROOT / "roles"), "HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/bin"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert ("failed=0" not in done.stdout) is refused, done.stdout + done.stderr
    assert ("/mnt/wal/lab-wal was there, and is not" in " ".join(done.stdout.split())) is refused
