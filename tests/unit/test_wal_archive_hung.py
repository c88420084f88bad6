"""The archive of the log in a folder that does not answer, such as one of an NFS server that is gone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.role_modules import role_module
from tests.tree import ROOT


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with programs of a search path of its own, and little patience."""
    loaded = role_module("database_backup/library/wal_archive.py")
    monkeypatch.setattr(loaded, "AS_POSTGRES", ())
    monkeypatch.setattr(loaded, "LOOK_S", 0.2)
    monkeypatch.setattr(loaded, "HUNG_S", 0.5)
    monkeypatch.setattr(loaded, "END_S", 1.0)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return loaded


def program(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)


def archive(module: ModuleType, folder: Path) -> object:
    (folder / "wal").mkdir()
    (folder / "archive.conf").write_text(f"[global]\nrepo1-path={folder}/wal\n[penstock]\npg1-path={folder}/main\n")
    return module.Archive(folder / "archive.conf")


HANGS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def test_a_backup_into_a_folder_that_stops_to_answer_ends_with_the_reason(module: ModuleType, tmp_path: Path) -> None:
    pid = str(tmp_path / "pid")
    program(tmp_path, "pgbackrest", f"import os; open({pid!r}, 'w').write(str(os.getpid())); {HANGS}")
    program(tmp_path, "stat", f"import os.path, sys; os.path.exists({pid!r}) or sys.exit(0); {HANGS}")
    begun = time.monotonic()
    with pytest.raises(module.FaultError, match="does not answer"):
        archive(module, tmp_path).call("backup")  # type: ignore[attr-defined]
    assert time.monotonic() - begun < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path(pid).read_text()), 0)


def test_one_that_does_not_answer_at_the_beginning_has_nothing_begun(module: ModuleType, tmp_path: Path) -> None:
    program(tmp_path, "pgbackrest", f"open({str(tmp_path / 'begun')!r}, 'w')")
    program(tmp_path, "stat", HANGS)
    with pytest.raises(module.FaultError, match="does not answer"):
        archive(module, tmp_path).call("backup")  # type: ignore[attr-defined]
    assert not (tmp_path / "begun").exists()


def test_a_long_backup_into_a_folder_that_answers_goes_on(module: ModuleType, tmp_path: Path) -> None:
    program(tmp_path, "pgbackrest", "import time; time.sleep(1.5); print('done')")
    program(tmp_path, "stat", "import sys; sys.exit(1)")
    assert archive(module, tmp_path).call("backup") == "done"  # type: ignore[attr-defined]


def test_a_deploy_asks_the_folder_with_an_end_before_it_looks_into_it() -> None:
    """A task of Ansible that looks at a folder which hangs is waited for without end."""
    tasks = ROOT / "roles/wal_archive/tasks"
    order = [Path(task["ansible.builtin.import_tasks"]) for task in yaml.safe_load((tasks / "main.yml").read_text())]
    steps = [task for path in order for task in yaml.safe_load((tasks / path).read_text())]
    first, second = [task for task in steps if "wal_archive_to" in str(task)][:2]
    assert first["ansible.builtin.command"]["argv"][:4] == ["timeout", "--kill-after=10", "60", "stat"]
    assert "does not answer" in second["ansible.builtin.assert"]["fail_msg"]
