"""Keys that were given up, as the installer and the site keep them for each other."""

from __future__ import annotations

import itertools
import json
import resource
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import IntegrityError, PenstockError
from reservoir.bundle import bundles
from reservoir.intake import trust
from reservoir.intake.store import Store
from reservoir.intake.take import take as imported
from reservoir.signing import keychain
from reservoir.signing.keychain import Keychain
from tests.unit.reservoir.installer.machines import (
    Installed,
    Machine,
    bytes_of,
    pem,
    statements,
)
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP


def test_the_sites_own_word_gives_up_a_key_that_the_installer_followed(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    forged = Ed25519PrivateKey.generate()
    chain = Keychain(rotations=[keychain.statement(key, forged.public_key(), 1, 0)])
    assert machine.install(forged, chain) == 0
    assert machine.counts == bytes_of(forged)
    assert machine.take(key, replace=True)
    assert machine.counts == bytes_of(key)
    assert machine.take(key)
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(forged, chain)
    assert machine.install(forged, chain) == 3
    later = Ed25519PrivateKey.generate()
    longer = Keychain(rotations=[*chain.rotations, keychain.statement(forged, later.public_key(), 2, 0)])
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(later, longer)
    assert machine.install(later, longer) == 3
    assert machine.take(forged, chain, replace=True), "unless an administrator wants it again"
    assert machine.counts == bytes_of(forged)


def test_a_key_that_was_replaced_before_another_was_given_up_stays_refused(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    leaked, new = (Ed25519PrivateKey.generate() for _ in range(2))
    assert machine.install(leaked, Keychain(rotations=[keychain.statement(key, leaked.public_key(), 1, 0)])) == 0
    assert machine.install(new, replace=True) == 0
    assert machine.counts == bytes_of(new)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        machine.take(key)
    assert machine.install(key) == 3
    assert machine.take(new)


def test_keys_that_were_given_up_one_after_another_stay_refused(machine: Machine, key: Ed25519PrivateKey) -> None:
    keys = [key, *(Ed25519PrivateKey.generate() for _ in range(3))]
    for new in keys[1:]:
        assert machine.install(new, replace=True) == 0
        assert machine.counts == bytes_of(new)
    for old in keys[:-1]:
        assert machine.install(old) == 3
        with pytest.raises(IntegrityError, match="does not belong to the key"):
            machine.take(old)
    assert machine.take(keys[-1])


def test_who_speaks_last_is_heard_however_often_the_key_goes_to_and_fro(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    """All within one day, so that no day tells which word came last."""
    other = Ed25519PrivateKey.generate()
    for new in (other, key, other, key):
        assert machine.install(new, replace=True) == 0
        assert machine.counts == bytes_of(new)
    for new in (other, key, other):
        assert machine.take(new, replace=True)
        assert machine.counts == bytes_of(new)
        assert machine.install(new) == 0
    assert machine.install(key, replace=True) == 0
    assert machine.counts == bytes_of(key)


def test_records_of_before_all_keys_were_kept_count(machine: Machine, key: Ed25519PrivateKey) -> None:
    leaked, new = (Ed25519PrivateKey.generate() for _ in range(2))

    def as_before(path: Path) -> None:
        noted = json.loads(path.read_text())
        noted.pop("before", None)
        path.write_text(json.dumps(noted))

    assert machine.install(leaked, Keychain(rotations=[keychain.statement(key, leaked.public_key(), 1, 0)])) == 0
    as_before(machine.prefix / trust.RECORD)
    assert machine.counts == bytes_of(leaked)
    assert machine.install(new, replace=True) == 0
    assert machine.counts == bytes_of(new), "the chain said what was replaced"
    assert machine.take(key, replace=True)
    as_before(machine.prefix / trust.RECORD)
    as_before(machine.site / "keys" / trust.RECORD)
    assert machine.counts == bytes_of(key)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 1.0},
        {"number": True},
        {"note": "more"},
        {"date": "2026-1-1"},
        {"date": 20260101},
        {"signature": None},
        {"old": "A" * 64},
    ],
)
def test_the_installer_takes_of_a_chain_what_the_program_takes(
    machine: Machine, key: Ed25519PrivateKey, change: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing signs `keys.json` as a whole, and what the installer kept of it locked every import out."""
    new = Ed25519PrivateKey.generate()
    chain = Keychain(rotations=[keychain.statement(key, new.public_key(), 1, 0)])
    bundle = machine.made(new, chain)
    said = json.loads((bundle / bundles.KEYS).read_text())
    said["rotations"][0] |= change
    (bundle / bundles.KEYS).write_text(json.dumps(said))
    assert machine._install(bundle, first="") == 3
    assert "not a chain of keys" in capsys.readouterr().err
    (bundle / bundles.KEYS).write_text(json.dumps(said | {"rotations": [], "note": "more"}))
    assert machine._install(bundle, first="") == 3
    assert machine.install(new, chain) == 0
    assert machine.take(new, chain)


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({"later": [1]}, True),
        ({"follows": None, "since": ""}, True),
        ({"schema": 2}, False),
        ({"schema": 1.0}, True),
        ({"since": 5}, False),
        ({"follows": "x"}, False),
        ({"instead_of": ""}, False),
        ({"before": None}, False),
        ({"how": "else"}, False),
    ],
)
def test_the_installer_takes_of_a_record_what_the_program_takes(
    machine: Machine, key: Ed25519PrivateKey, change: dict[str, object], good: bool
) -> None:
    assert machine.install(key) == 0
    path = machine.prefix / trust.RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    def agree() -> None:
        known = trust.known(Store(machine.folder / "none"), machine.prefix)
        assert known
        assert known.trust.how == BOOTSTRAP.trust_of(machine.prefix / trust.PINNED, False)["how"] == "key"

    if good:
        agree()
        return
    with pytest.raises(IntegrityError, match="nobody knows which keys were given up"):
        trust.known(Store(machine.folder / "none"), machine.prefix)
    with pytest.raises(BOOTSTRAP.RefusedError, match="nobody knows which keys were given up"):
        BOOTSTRAP.trust_of(machine.prefix / trust.PINNED, False)


def test_a_record_that_came_before_its_key_says_how_the_one_that_is_there_came(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    assert machine.install(key) == 0
    path = machine.prefix / trust.RECORD
    noted = json.loads(path.read_text())
    for follows, how in ((noted["fingerprint"], "key"), ("b" * 64, "unknown")):
        gone = "c" * 64
        before = [gone, noted["fingerprint"]]
        later = {"fingerprint": "a" * 64, "follows": follows, "instead_of": gone, "before": before}
        path.write_text(json.dumps(noted | later))
        known = trust.known(Store(machine.folder / "none"), machine.prefix)
        assert known
        told = BOOTSTRAP.trust_of(machine.prefix / trust.PINNED, False)
        assert (known.trust.how, known.trust.before) == (told["how"], told["before"]) == (how, [gone])
        assert known.trust.since == told.get("since", "") == (noted["since"] if how == "key" else "")
        assert known.trust.instead_of == told.get("instead_of") == ("c" * 64 if how == "key" else None)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_record_that_is_a_folder_is_told_in_words(machine: Machine, key: Ed25519PrivateKey, given_up: bool) -> None:
    assert machine.install(key) == 0
    path = machine.prefix / trust.RECORD
    path.unlink()
    path.mkdir()
    with pytest.raises(IntegrityError, match=r"is a folder.*remove it"):
        trust.known(Store(machine.folder / "none"), machine.prefix, given_up=given_up)
    with pytest.raises(BOOTSTRAP.RefusedError, match=r"is a folder.*remove it"):
        BOOTSTRAP.trust_of(machine.prefix / trust.PINNED, given_up)


@pytest.mark.parametrize("damaged", [trust.PINNED, trust.CHAIN, trust.RECORD])
def test_what_is_kept_and_damaged_does_not_count_against_who_gives_it_up(
    machine: Machine, key: Ed25519PrivateKey, damaged: str
) -> None:
    new = Ed25519PrivateKey.generate()
    assert machine.install(key) == 0
    (machine.prefix / damaged).write_text("[]")
    with pytest.raises(PenstockError):
        machine.take(key)
    assert machine.install(key) == 3
    assert machine.take(new, replace=True)
    assert machine.install(new, replace=True) == 0
    assert machine.take(new)


def test_each_statement_of_a_chain_is_checked_once(
    machine: Machine, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key, *(Ed25519PrivateKey.generate() for _ in range(2))]
    chain = statements(*keys)
    assert machine.take(keys[-1], chain)
    points: list[bytes] = []
    read = BOOTSTRAP.decompress

    def counted(data: bytes) -> Any:
        points.append(data)
        return read(data)

    monkeypatch.setattr(BOOTSTRAP, "decompress", counted)
    assert machine.install(keys[-1], chain) == 0
    assert [points.count(old.public_key().public_bytes_raw()) for old in keys] == [1, 1, 1]


@pytest.mark.parametrize("at_the_site", [True, False])
def test_who_replaces_a_key_by_itself_gives_up_those_before_it(
    machine: Machine, key: Ed25519PrivateKey, at_the_site: bool
) -> None:
    """The chain that told of them is kept no more."""
    between, new = (Ed25519PrivateKey.generate() for _ in range(2))
    chain, back = statements(key, between, new), statements(new, between)
    if at_the_site:
        assert machine.take(new, chain)
        assert machine.take(new, replace=True)
    else:
        assert machine.install(new, chain) == 0
        assert machine.install(new, replace=True) == 0
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(between, back)
    assert machine.install(between, back) == 3
    assert machine.counts == bytes_of(new)


def test_a_full_disk_leaves_what_is_noted_of_the_key_as_it_was(tmp_path: Path) -> None:
    """A record cut short would say that no key was given up."""
    rotation = keychain.statement(Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate().public_key(), 1, 0)
    folder = tmp_path / "kept"
    folder.mkdir()
    given_up = {"fingerprint": "c" * 64, "how": "key", "before": ["a" * 64]}
    BOOTSTRAP.pin(folder, SimpleNamespace(key=b"c" * 32), given_up, [rotation.model_dump()])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    # no file may grow meanwhile
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for key, chain in ((b"c", [rotation.model_dump()] * 2), (b"d", [])):
            with pytest.raises(OSError, match="too large"):
                BOOTSTRAP.pin(folder, SimpleNamespace(key=key * 32), given_up | {"before": []}, chain)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_cannot_be_written_at_all_says_why(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            BOOTSTRAP.keep(tmp_path / "bundle.pub", "key")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_what_is_known_of_keys(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # enough for the lock
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, before[1]))
        code = installed.again()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert code == 5
    installed.holds()
    assert installed.again() == 0


def test_a_change_of_the_key_may_be_cut_off_anywhere(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off = 0
    for steps in itertools.count():
        left = iter(range(steps))

        def step(*_: object, left: Any = left) -> None:
            if next(left, None) is None:
                raise OSError(5, "the power is cut")

        with monkeypatch.context() as patch:
            patch.setattr(BOOTSTRAP.os, "fsync", step)
            patch.setattr(BOOTSTRAP.os, "sync", step)
            code = installed.install()
        installed.holds()
        if code == 0:
            break
        cut_off += 1
        assert installed.again() == 0
        assert keychain.read(installed.place / trust.CHAIN) == installed.chain
        known = trust.known(Store(installed.machine.site), installed.place)
        assert known
        assert known.key == installed.new.public_key()
    assert cut_off == 6, "before and after each of three files"


def test_what_is_known_of_keys_is_not_written_anew(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed.install() == 0
    written: list[Path] = []
    monkeypatch.setattr(BOOTSTRAP.os, "fsync", written.append)
    assert installed.again() == 0
    assert not written


def test_the_site_forgets_no_key_that_the_installer_saw_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own chain goes on with the installer's from where both meet, which is not where that one began."""
    first, between, last = (Ed25519PrivateKey.generate() for _ in range(3))
    back = machine.made(between, statements(last, between))
    assert imported(back, machine.site, key=last.public_key(), replace_key=True).changed
    whole = machine.made(last, statements(first, between, last))
    assert machine._install(whole, "--key", pem(machine.folder, first), "--replace-key", first="") == 0
    monkeypatch.setattr(sys, "prefix", str(machine.prefix.resolve()))
    assert machine.take(last, replace=True)
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(first, statements(last, first))
    assert machine.install(first, statements(last, first)) == 3
