"""Fixtures of the installer's tests."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.intake.take import take as imported
from tests.unit.reservoir.installer.machines import (
    Installed,
    Machine,
    Programs,
    Run,
)
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs()
    # the installer's own alone: bundles are made meanwhile
    own = SimpleNamespace(**vars(BOOTSTRAP.subprocess) | {"run": programs.run})
    monkeypatch.setattr(BOOTSTRAP, "subprocess", own)
    monkeypatch.setattr(BOOTSTRAP.os, "sync", lambda: None)
    monkeypatch.setattr(sys, "version_info", (3, 11, 2, "final", 0))
    return programs


@pytest.fixture
def install(tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the installer of a bundle; return its exit code."""

    def run(folder: Path, *words: str | Path, first: str = "--trust-first") -> int:
        # tests of other things need no key
        places: list[str | Path] = [
            *([first] if first else []),
            "--prefix",
            tmp_path / "opt/site",
            "--command",
            tmp_path / "bin/penstock",
            "--root",
            tmp_path / "site",
            "--state",
            tmp_path / "state",
        ]
        monkeypatch.setattr(BOOTSTRAP, "__file__", str(folder / "bootstrap.py"))
        monkeypatch.setattr(sys, "argv", ["bootstrap.py", *map(str, [*places, *words])])
        return int(BOOTSTRAP.main())

    return run


@pytest.fixture
def machine(tmp_path: Path, key: Ed25519PrivateKey, install: Run, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose site trusts `key`."""
    machine = Machine(tmp_path, install, monkeypatch)
    imported(machine.made(key), machine.site, key=key.public_key())
    return machine


@pytest.fixture
def installed(machine: Machine, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch) -> Installed:
    installed = Installed(machine, key)
    monkeypatch.setattr(sys, "prefix", str(installed.place))
    return installed
