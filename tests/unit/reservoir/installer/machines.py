"""Machines on which `install.sh` runs, and the bundles that it is given."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.contents.artifact import PythonArtifact
from reservoir.intake import trust
from reservoir.intake.store import Store
from reservoir.intake.take import take as imported
from reservoir.signing import ed25519, keychain
from reservoir.signing.keychain import Keychain
from tests.unit.reservoir.parts import artifact, make_bundle, wheel
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP

Run = Callable[..., int]


class Programs:
    """Stands for the programs that the installer starts: what they would make, and what they were asked."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []
        self.wheels: set[str] = set()
        self.code = 0

    def run(self, command: Sequence[str], check: bool = False, **around: object) -> Any:
        self.commands.append(command)
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir()
            python.with_name("penstock").touch()
            self.wheels = {path.name for path in (Path(command[-1]) / "wheels").iterdir()}
        elif check and self.code:
            raise BOOTSTRAP.subprocess.CalledProcessError(self.code, command)
        return SimpleNamespace(returncode=0 if "venv" in command else self.code)


def product(folder: Path, key: ed25519.SigningKey, version: str = "1.0", chain: Keychain | None = None) -> Path:
    """A bundle of Penstock, pip and one dependency that stays the same."""
    made = []
    for name in ("penstock", "pip", "steady"):
        path = wheel(folder, name=name, version=version if name == "penstock" else "1.0")
        if name != "penstock" and (folder / "kept" / path.name).exists():
            path.write_bytes((folder / "kept" / path.name).read_bytes())
        (folder / "kept").mkdir(exist_ok=True)
        (folder / "kept" / path.name).write_bytes(path.read_bytes())
        made.append((artifact(path, PythonArtifact, name, version if name == "penstock" else "1.0"), path))
    return make_bundle(folder, key, version=version, made=made, chain=chain)


def pem(folder: Path, key: ed25519.SigningKey) -> Path:
    path = folder / f"{ed25519.fingerprint(key.public_key())[:8]}.pub"
    path.write_bytes(ed25519.public_pem(key))
    return path


def pinned(prefix: Path) -> bytes:
    return (prefix / "bundle.pub").read_bytes()


class Machine:
    """A site and what `install.sh` keeps beside it; both are asked whose bundles count."""

    def __init__(self, folder: Path, install: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.site, self.prefix = folder, folder / "site", folder / "opt/site"
        self._install, self._monkeypatch, self._made = install, monkeypatch, 0

    def made(self, key: ed25519.SigningKey, chain: Keychain | None = None) -> Path:
        self._made += 1
        return product(self.folder, key, f"{self._made}.0", chain)

    def install(self, key: ed25519.SigningKey, chain: Keychain | None = None, replace: bool = False) -> int:
        words = ("--key", pem(self.folder, key), "--replace-key") if replace else ()
        code = self._install(self.made(key, chain), *words, first="")
        self._monkeypatch.setattr(sys, "prefix", str(self.prefix.resolve()))
        return code

    def take(self, key: ed25519.SigningKey, chain: Keychain | None = None, replace: bool = False) -> bool:
        words: dict[str, Any] = {"key": key.public_key(), "replace_key": True} if replace else {}
        # not the one of the tests, which trusts whatever comes first
        return imported(self.made(key, chain), self.site, **words).changed

    @property
    def counts(self) -> set[bytes]:
        """The keys that count, for the next import and for the next installation."""
        pin = BOOTSTRAP.pin_of(SimpleNamespace(root=self.site, prefix=self.prefix))
        known = trust.expected_key(Store(self.site))
        return {
            ed25519.read_public(pin.read_bytes(), "").public_bytes_raw(),
            known.public_bytes_raw() if known else b"",
        }


def bytes_of(key: ed25519.SigningKey) -> set[bytes]:
    return {key.public_key().public_bytes_raw()}


def statements(*keys: ed25519.SigningKey) -> Keychain:
    steps = enumerate(itertools.pairwise(keys), 1)
    return Keychain(rotations=[keychain.statement(old, new.public_key(), at, 0) for at, (old, new) in steps])


class Installed:
    """A machine whose site trusts a key that `install.sh` gave up, and its bundle by the one that follows."""

    def __init__(self, machine: Machine, key: Ed25519PrivateKey) -> None:
        self.machine, self.given_up = machine, key
        self.old, self.new = (Ed25519PrivateKey.generate() for _ in range(2))
        self.chain = statements(self.old, self.new)
        bundle = product(machine.folder, self.old, "7.0")
        assert machine._install(bundle, "--key", pem(machine.folder, self.old), "--replace-key", first="") == 0
        (machine.prefix / "bin/python").symlink_to(sys.executable)
        self.place = machine.prefix.resolve()
        self.bundle = product(machine.folder, self.new, "7.0", self.chain)
        names = (trust.RECORD, trust.CHAIN, trust.PINNED)
        self.files = {name: (self.place / name).read_bytes() for name in names if (self.place / name).exists()}

    def install(self) -> int:
        """Install it again from the beginning, which changes the key in place."""
        for path in self.place.glob("*bundle.*.*"):
            path.unlink()
        for name, content in self.files.items():
            (self.place / name).write_bytes(content)
        return self.again()

    def again(self) -> int:
        code = self.machine._install(self.bundle, first="")
        assert self.machine.prefix.resolve() == self.place, "what stands is not installed anew"
        return code

    def holds(self) -> None:
        """Nothing that was given up counts, for neither of both who ask."""
        assert self.machine.counts in (bytes_of(self.old), bytes_of(self.new))
        known = trust.known(Store(self.machine.site), self.place)
        assert known
        name = ed25519.fingerprint(self.given_up.public_key())
        assert name in known.earlier
        assert name in BOOTSTRAP.earlier(self.place / trust.PINNED, False)
