"""Whose bundles a site takes, and what it says about that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import files
from common.errors import IntegrityError
from reservoir.intake import trust
from reservoir.intake.store import Store
from reservoir.intake.take import take
from reservoir.media import split
from reservoir.publication.status import status
from reservoir.signing import ed25519, keychain
from tests.unit.reservoir.parts import make_bundle


def test_the_first_bundle_needs_a_key_or_a_word(tmp_path: Path, bundle: Path, key: Ed25519PrivateKey) -> None:
    root, name = tmp_path / "site", ed25519.fingerprint(key.public_key())
    with pytest.raises(IntegrityError, match=rf"signed by {name}, a key that this site does not know.*--trust-first"):
        take(bundle, root)
    assert not Store(root).imported()
    assert not Store(root).pinned_key.exists()
    done = take(bundle, root, trust_first=True)
    assert done.trust
    assert (done.trust.fingerprint, done.trust.how) == (name, "first-use")
    again = take(make_bundle(tmp_path / "made", key, version="2.0"), root)
    assert again.trust == done.trust
    assert status(root).trust == done.trust
    assert "--trust-first" in done.trust.words


def test_a_key_that_is_given_later_says_more_than_the_first_sight(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    root = tmp_path / "site"
    take(bundle, root, trust_first=True)
    done = take(bundle, root, key=key.public_key())
    assert done.trust
    assert done.trust.how == "key"
    assert take(bundle, root).trust == done.trust


def test_another_key_is_trusted_only_where_the_old_one_is_given_up(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    root, other = tmp_path / "site", Ed25519PrivateKey.generate()
    take(bundle, root, key=key.public_key())
    foreign = make_bundle(tmp_path / "foreign", other, version="2.0")
    with pytest.raises(IntegrityError, match="did not replace it"):
        take(foreign, root, key=other.public_key(), trust_first=True)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        take(foreign, root, replace_key=True)
    assert trust.expected_key(Store(root)) == key.public_key()
    done = take(foreign, root, key=other.public_key(), replace_key=True)
    assert done.trust
    assert done.trust.instead_of == ed25519.fingerprint(key.public_key())
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        take(make_bundle(tmp_path / "made", key, version="3.0"), root)


def test_a_key_that_was_given_up_at_the_installer_is_given_up_at_the_site(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other, installed = tmp_path / "site", Ed25519PrivateKey.generate(), tmp_path / "installed"
    installed.mkdir()
    monkeypatch.setattr("sys.prefix", str(installed))
    take(bundle, root, key=key.public_key())
    (installed / trust.PINNED).write_bytes(ed25519.public_pem(other))
    assert trust.expected_key(Store(root)) == key.public_key(), "a key that is merely there gives up nothing"
    names = [ed25519.fingerprint(one.public_key()) for one in (other, key)]
    noted = trust.Trust(fingerprint=names[0], how="key", since="2026-01-02", instead_of=names[1])
    (installed / trust.RECORD).write_text(noted.model_dump_json(by_alias=True))
    done = take(make_bundle(tmp_path / "foreign", other, version="2.0"), root)
    assert done.trust == noted
    # and back, by the site's own word
    take(make_bundle(tmp_path / "made", key, version="3.0"), root, key=key.public_key(), replace_key=True)
    assert trust.expected_key(Store(root)) == key.public_key()


def test_a_key_that_the_chain_leads_to_says_which_one_it_replaced(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    root, new = tmp_path / "site", Ed25519PrivateKey.generate()
    chain = keychain.Keychain(rotations=[keychain.statement(key, new.public_key(), 1, 0)])
    take(bundle, root, key=key.public_key())
    done = take(make_bundle(tmp_path / "made", new, version="2.0", chain=chain), root)
    assert done.trust
    assert done.trust.how == "key"
    assert done.trust.follows == ed25519.fingerprint(key.public_key())


def test_what_is_said_for_the_first_medium_counts_for_the_others(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    root = tmp_path / "site"
    first, *others = split.split(bundle, 2_300_000, key, tmp_path)
    assert not take(first, root, trust_first=True).complete
    for medium in others:
        done = take(medium, root)
    assert done.complete


@pytest.mark.parametrize("noted", [None, '{"fingerprint": "%s", "how": "key"}' % ("0" * 64)])
def test_a_site_that_noted_nothing_says_so(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, noted: str | None
) -> None:
    root = tmp_path / "site"
    take(bundle, root, key=key.public_key())
    record = Store(root).keys / trust.RECORD
    record.unlink()
    if noted:
        record.write_text(noted)
    done = take(bundle, root)
    assert done.trust
    assert done.trust.how == "unknown"
    assert take(bundle, root, key=key.public_key()).trust != done.trust


@pytest.mark.parametrize("noted", ["", "{", '{"fingerprint": "%s", "how": "key", "before": [1]}' % ("0" * 64)])
def test_a_damaged_record_is_not_one_of_a_site_that_gave_up_nothing(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, noted: str
) -> None:
    root = tmp_path / "site"
    take(bundle, root, key=key.public_key())
    (Store(root).keys / trust.RECORD).write_text(noted)
    with pytest.raises(IntegrityError, match=r"nobody knows which keys were given up.*--replace-key"):
        take(bundle, root)
    take(bundle, root, key=key.public_key(), replace_key=True)
    assert take(bundle, root).complete


def test_a_change_of_the_key_may_be_cut_off_anywhere(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record comes first: it names the key that is there still, and all those before it."""
    root, old, new = tmp_path / "site", *(Ed25519PrivateKey.generate() for _ in range(2))
    take(bundle, root, key=key.public_key())
    take(make_bundle(tmp_path / "old", old, version="2.0"), root, key=old.public_key(), replace_key=True)
    chain = keychain.Keychain(rotations=[keychain.statement(old, new.public_key(), 1, 0)])
    last = make_bundle(tmp_path / "new", new, version="3.0", chain=chain)
    write = files.write
    for name in (trust.RECORD, Store(root).keychain.name, Store(root).pinned_key.name):

        def cut_off(path: Path, content: bytes, name: str = name) -> None:
            if path.name == name:
                raise OSError(5, "the power is cut")
            write(path, content)

        with monkeypatch.context() as patch:
            patch.setattr(trust, "files", SimpleNamespace(write=cut_off))
            with pytest.raises(OSError, match="the power is cut"):
                take(last, root)
        known = trust.known(Store(root))
        assert known
        assert known.key == old.public_key()
        assert ed25519.fingerprint(key.public_key()) in known.earlier
        assert known.trust.how == "key", "what was said of the key that is there is in the record of the next"
        assert known.trust.instead_of == ed25519.fingerprint(key.public_key())
    assert take(last, root).complete
    done = trust.known(Store(root))
    assert done
    assert done.trust.instead_of == ed25519.fingerprint(key.public_key())
    assert keychain.read(Store(root).keychain) == chain
