"""Keys that an installation trusts: those that are given, kept, replaced, and vouched for."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import IntegrityError
from reservoir import settings
from reservoir.bundle import bundles
from reservoir.intake import trust
from reservoir.intake.store import Store
from reservoir.publication.due import require_sound
from reservoir.signing import ed25519, keychain
from reservoir.signing.keychain import Keychain
from tests.unit.reservoir.installer.machines import (
    Programs,
    Run,
    pem,
    pinned,
    product,
)
from tests.unit.reservoir.parts import make_bundle, take
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP


def test_the_key_that_was_checked_is_pinned_whatever_the_medium_shows_later(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prefix = product(tmp_path, key), tmp_path / "opt/site"
    installed = BOOTSTRAP.install

    def then_changed(*arguments: Any) -> int:
        (folder / "penstock.pub").write_bytes(ed25519.public_pem(Ed25519PrivateKey.generate()))
        return int(installed(*arguments))

    monkeypatch.setattr(BOOTSTRAP, "install", then_changed)
    (tmp_path / "linked.pub").symlink_to(pem(tmp_path, key))
    assert install(folder, "--key", tmp_path / "linked.pub") == 0
    assert pinned(prefix) == ed25519.public_pem(key)


def test_the_key_that_was_given_is_kept_over_upgrades(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prefix = tmp_path / "opt/site"
    assert install(product(tmp_path, key), "--key", pem(tmp_path, key)) == 0
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    assert settings.installer_key().read_bytes() == ed25519.public_pem(key)
    assert install(product(tmp_path, key, "2.0")) == 0
    assert pinned(prefix) == ed25519.public_pem(key)
    stranger = Ed25519PrivateKey.generate()
    assert install(product(tmp_path, stranger, "3.0")) == 3
    assert "does not belong to the key" in capsys.readouterr().err
    assert install(product(tmp_path, stranger, "3.0"), "--key", pem(tmp_path, stranger)) == 3
    assert "--replace-key" in capsys.readouterr().err
    assert pinned(prefix) == ed25519.public_pem(key)
    assert install(product(tmp_path, stranger, "3.0"), "--key", pem(tmp_path, stranger), "--replace-key") == 0
    assert pinned(prefix) == ed25519.public_pem(stranger)


def test_a_key_that_was_given_up_stays_so_before_the_site_has_imported_anything_by_the_new_one(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site, prefix, new = tmp_path / "site", tmp_path / "opt/site", Ed25519PrivateKey.generate()
    take(make_bundle(tmp_path / "first", key), site, key=key.public_key())
    assert install(product(tmp_path, key)) == 0
    spoken = ("--key", pem(tmp_path, new), "--replace-key")
    assert install(product(tmp_path, new, "2.0"), *spoken) == 0
    assert install(product(tmp_path, new, "2.0")) == 0, "installed already, and by the key that counts"
    assert install(product(tmp_path, new, "3.0")) == 0
    assert install(product(tmp_path, key, "4.0")) == 3, "the site's own pin is the one that was given up"
    assert f"this site trusts the key {ed25519.fingerprint(new.public_key())}" in capsys.readouterr().err
    known = trust.known(Store(site), prefix)
    assert known
    assert known.key == new.public_key()
    # and back, by the site's own word
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    old = make_bundle(tmp_path / "made", key, version="5.0")
    take(old, site, key=key.public_key(), replace_key=True)
    assert install(product(tmp_path, key, "5.0")) == 0


def test_a_key_that_nobody_vouches_for_installs_nothing(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, prefix = product(tmp_path, key), tmp_path / "opt/site"
    name = ed25519.fingerprint(key.public_key())
    assert install(folder, first="") == 3
    assert f"signed by {name}, a key that this machine does not know" in (said := capsys.readouterr().err)
    assert "--trust-first" in said
    assert not prefix.exists()
    assert install(folder, "--verify-only", first="") == 0
    assert install(folder) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"{name}\nis the key that signed small 1.0, trusted at first sight with --trust-first" in "\n".join(told)
    assert name in told, "people compare what stands on a line of its own"
    assert install(folder, first="") == 0, "it is known from then on"
    assert install(product(tmp_path, key, "2.0"), "--key", pem(tmp_path, key), first="") == 0
    assert "given with --key" in capsys.readouterr().out
    noted = trust.known(Store(tmp_path / "site"), prefix)
    assert noted
    assert (noted.trust.fingerprint, noted.trust.how) == (name, "key")


def test_the_key_that_the_site_expects_counts_for_the_installer_too(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run
) -> None:
    take(product(tmp_path, key), tmp_path / "site")
    assert install(product(tmp_path, Ed25519PrivateKey.generate(), "2.0")) == 3
    assert install(product(tmp_path, key, "2.0")) == 0
    assert pinned(tmp_path / "opt/site") == ed25519.public_pem(key)


def test_the_installer_follows_the_chain_of_keys(tmp_path: Path, install: Run) -> None:
    path = tmp_path / "signing.key"
    first = ed25519.new_key(path)
    old = pem(tmp_path, first)
    for _ in range(2):
        keychain.rotate(path, 0)
    new = ed25519.read_key(path)
    chain = keychain.of_key(path, new)
    assert install(product(tmp_path, first), "--key", old) == 0
    assert install(product(tmp_path, new, "2.0", chain)) == 0
    assert pinned(tmp_path / "opt/site") == ed25519.public_pem(new)
    assert install(product(tmp_path, new, "3.0", chain), "--key", old) == 0
    assert install(product(tmp_path, first, "4.0")) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [('"number":1', '"number":3'), ("2026", "2027"), ('"date"', '"day"'), ("{", "["), ("{", "[" * 100_000)],
)
def test_the_installer_refuses_a_forged_chain(tmp_path: Path, install: Run, old: str, new: str) -> None:
    path = tmp_path / "signing.key"
    known = pem(tmp_path, ed25519.new_key(path))
    keychain.rotate(path, 1_767_323_045)
    key = ed25519.read_key(path)
    bundle = product(tmp_path, key, chain=keychain.of_key(path, key))
    chain = bundle / bundles.KEYS
    text = chain.read_text().replace(": ", ":")
    assert old in text
    chain.write_text(text.replace(old, new))
    assert install(bundle, "--key", known) == 3
    assert install(bundle) == 3


def test_a_chain_of_keys_is_short(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read before anybody is trusted, and each of its signatures takes time."""
    keys = [Ed25519PrivateKey.generate() for _ in range(65)] + [key]
    rotations = [
        keychain.statement(old, new.public_key(), 1 + at, 0) for at, (old, new) in enumerate(itertools.pairwise(keys))
    ]
    (bundle / bundles.KEYS).write_bytes(keychain.encode(Keychain(rotations=rotations)))
    assert install(bundle, "--verify-only") == 3
    assert "more than 64 keys" in capsys.readouterr().err


def test_a_key_that_the_installer_saw_replaced_counts_no_more_before_the_site_has_imported_anything(
    tmp_path: Path, install: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site, prefix, path = tmp_path / "site", tmp_path / "opt/site", tmp_path / "signing.key"
    keys: list[ed25519.SigningKey] = [ed25519.new_key(path)]
    for _ in range(2):
        keychain.rotate(path, 0)
        keys.append(ed25519.read_key(path))
    chain = keychain.of_key(path, keys[2])
    first, second, third = keys
    part = Keychain(rotations=chain.rotations[:1])
    held = take(make_bundle(tmp_path / "first", first), site, key=first.public_key()).identity
    assert install(product(tmp_path, first)) == 0
    assert install(product(tmp_path, second, "2.0", part)) == 0
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    assert install(product(tmp_path, first, "2.5"), "--key", pem(tmp_path, first)) == 3
    assert f"this site trusts the key {ed25519.fingerprint(second.public_key())}" in capsys.readouterr().err
    with pytest.raises(IntegrityError, match="signed with a key that was replaced on"):
        take(make_bundle(tmp_path / "late", first, version="2.5"), site)
    require_sound(Store(site), held, read=True)
    assert install(product(tmp_path, third, "3.0", chain)) == 0
    assert install(product(tmp_path, third, "3.0", chain)) == 0, "installed already"
    assert install(product(tmp_path, second, "4.0", part)) == 3
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    assert take(make_bundle(tmp_path / "made", third, version="4.0", chain=chain), site).changed
    assert keychain.read(Store(site).keychain) == chain
    require_sound(Store(site), held, read=True)


def test_the_installer_keeps_nothing_that_a_stranger_says_of_the_time_before_its_key(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run
) -> None:
    prefix, stranger, new = tmp_path / "opt/site", *(Ed25519PrivateKey.generate() for _ in range(2))
    poison = Keychain(rotations=[keychain.statement(stranger, key.public_key(), 1, 0)])
    assert install(product(tmp_path, key, chain=poison)) == 0
    assert not (prefix / trust.CHAIN).exists()
    honest = Keychain(rotations=[keychain.statement(key, new.public_key(), 1, 0)])
    assert install(product(tmp_path, new, "2.0", honest)) == 0
    assert keychain.read(prefix / trust.CHAIN) == honest
    assert install(product(tmp_path, stranger, "3.0"), "--key", pem(tmp_path, stranger), "--replace-key") == 0
    assert not (prefix / trust.CHAIN).exists()


def test_the_installer_takes_a_file_with_one_key_alone_and_keeps_the_key(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another program may read another one of two blocks."""
    own, other = (ed25519.public_pem(one) for one in (key, Ed25519PrivateKey.generate()))
    for text in (other.replace(b"PUBLIC KEY", b"CERTIFICATE") + own, own + other, b"a word\n" + own):
        (bundle / bundles.PUBLIC_KEY).write_bytes(text)
        assert install(bundle, "--verify-only") == 3
        assert "not an Ed25519 public key" in capsys.readouterr().err
    whole = product(tmp_path, key)
    (whole / bundles.PUBLIC_KEY).write_bytes(b"\n" + own.replace(b"\n", b"\r\n"))
    assert install(whole) == 0
    assert pinned(tmp_path / "opt/site") == own
