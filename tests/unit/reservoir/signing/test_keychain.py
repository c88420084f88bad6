from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import files
from common.errors import ConflictError, IntegrityError, NotFoundError
from reservoir.bundle import bundles
from reservoir.bundle.verification import verify
from reservoir.intake.store import Store
from reservoir.publication.due import require_sound
from reservoir.signing import ed25519, keychain
from reservoir.signing.keychain import Keychain, Rotation, raw
from tests.unit.reservoir.parts import contents, make_bundle, take

DAY = 1_767_323_045


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A signing key that was replaced once."""
    path = tmp_path / "config" / "signing.key"
    ed25519.new_key(path)
    keychain.rotate(path, DAY)
    return path


@pytest.fixture
def old(path: Path) -> ed25519.SigningKey:
    (kept,) = path.parent.glob("signing.1.*.key")
    return ed25519.read_key(kept)


@pytest.fixture
def new(path: Path) -> ed25519.SigningKey:
    return ed25519.read_key(path)


@pytest.fixture
def chain(path: Path) -> Keychain:
    return keychain.read(keychain.beside(path))


def test_a_rotation_makes_a_key_keeps_the_old_one_and_says_which_replaces_which(path: Path, chain: Keychain) -> None:
    names = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    kept = f"signing.1.{keychain.fingerprint(chain.rotations[0].old)[:8]}.key"
    assert names == {
        "signing.key": 0o600,
        kept: 0o600,
        "signing.keys.json": 0o644,
        ".signing.key.lock": 0o600,
    }
    (rotation,) = chain.rotations
    assert (rotation.number, rotation.date) == (1, "2026-01-02")
    second = keychain.rotate(path, DAY)
    assert (second.number, second.old) == (2, rotation.new)
    assert keychain.read(keychain.beside(path)).rotations == [rotation, second]


def test_a_start_from_scratch_loses_no_old_key(path: Path, old: ed25519.SigningKey, new: ed25519.SigningKey) -> None:
    path.unlink()
    keychain.beside(path).unlink()
    third = ed25519.new_key(path)
    keychain.rotate(path, DAY)
    kept = {keychain.raw(ed25519.read_key(each).public_key()) for each in path.parent.glob("signing.1.*.key")}
    assert kept == {keychain.raw(key.public_key()) for key in (old, third)}


def test_there_must_be_a_key_to_rotate(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no signing key"):
        keychain.rotate(tmp_path / "signing.key", DAY)


@pytest.mark.parametrize("step", ["write", "replace"])
def test_an_interrupted_rotation_goes_on_with_the_key_that_it_made(
    path: Path, new: ed25519.SigningKey, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "write":
            patch.setattr(keychain, "encode", interrupted)
        else:
            patch.setattr(Path, "replace", lambda self, to: interrupted() if to == path else self.rename(to))
        with pytest.raises(KeyboardInterrupt):
            keychain.rotate(path, DAY)
    waiting = raw(ed25519.read_key(path.with_name(".signing.key.next")).public_key())
    assert raw(ed25519.read_key(path).public_key()) == raw(new.public_key())
    if step == "replace":
        with pytest.raises(ConflictError, match="interrupted"):
            keychain.of_key(path, new)
    assert keychain.rotate(path, DAY).new == waiting
    assert [each.number for each in keychain.of_key(path, ed25519.read_key(path)).rotations] == [1, 2]


def test_a_rotation_deletes_what_an_interrupted_one_wrote_of_keys(path: Path) -> None:
    left = [path.with_name(f".{name}{files.BESIDE}x") for name in (f".{path.name}.next", f"{path.stem}.1.0.key")]
    foreign = path.with_name(f".other.key{files.BESIDE}x")
    for each in (*left, foreign):
        each.write_bytes(b"secret")
    keychain.rotate(path, 0)
    assert [each.exists() for each in (*left, foreign)] == [False, False, True]


def test_a_site_follows_the_chain_and_refuses_the_old_key_from_then_on(
    tmp_path: Path, chain: Keychain, old: ed25519.SigningKey, new: ed25519.SigningKey
) -> None:
    site = tmp_path / "site"
    first = make_bundle(tmp_path, old, version="1.0")
    second = make_bundle(tmp_path, new, version="2.0", chain=chain)
    third = make_bundle(tmp_path, old, version="3.0")
    take(first, site)
    assert take(second, site).changed
    assert raw(ed25519.read_public(Store(site).pinned_key.read_bytes(), "x")) == raw(new.public_key())
    for words in ({}, {"allow_rollback": True}, {"key": old.public_key()}):
        for refused in (first, third):
            with pytest.raises(IntegrityError, match="signed with a key that was replaced on 2026-01-02"):
                take(refused, site, **words)
    assert take(make_bundle(tmp_path, new, version="4.0"), site).changed


def test_a_medium_that_first_shows_another_key_brings_no_replaced_one_back(
    tmp_path: Path,
    chain: Keychain,
    old: ed25519.SigningKey,
    new: ed25519.SigningKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, carried = tmp_path / "site", ed25519.carried
    take(make_bundle(tmp_path, old), site)
    take(make_bundle(tmp_path, new, version="2.0", chain=chain), site)
    swapped = make_bundle(tmp_path, old, version="3.0")
    shown = [ed25519.public_pem(Ed25519PrivateKey.generate())]

    def changing(path: Path, *longest: int) -> bytes:
        return shown.pop() if shown and path.name == bundles.PUBLIC_KEY else carried(path, *longest)

    monkeypatch.setattr(ed25519, "carried", changing)
    with pytest.raises(IntegrityError):
        take(swapped, site, key=old.public_key())
    assert len(Store(site).imported()) == 2


def test_two_rotations_are_followed_at_once(tmp_path: Path, path: Path, old: ed25519.SigningKey) -> None:
    site = tmp_path / "site"
    take(make_bundle(tmp_path, old), site)
    keychain.rotate(path, DAY)
    key = ed25519.read_key(path)
    assert take(make_bundle(tmp_path, key, version="2.0", chain=keychain.of_key(path, key)), site).changed


def test_a_key_given_by_hand_counts_without_a_chain(
    tmp_path: Path, chain: Keychain, old: ed25519.SigningKey, new: ed25519.SigningKey
) -> None:
    site = tmp_path / "site"
    take(make_bundle(tmp_path, old), site)
    stranger = Ed25519PrivateKey.generate()
    assert take(
        make_bundle(tmp_path, stranger, version="2.0"), site, key=stranger.public_key(), replace_key=True
    ).changed
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        take(make_bundle(tmp_path, new, version="3.0", chain=chain), site)


def _another_signer(chain: Keychain) -> Rotation:
    stranger = Ed25519PrivateKey.generate()
    forged = chain.rotations[0]
    return forged.model_copy(update={"signature": ed25519.sign(stranger, forged.message()).decode().strip()})


def _another_new_key(chain: Keychain) -> Rotation:
    return chain.rotations[0].model_copy(update={"new": raw(Ed25519PrivateKey.generate().public_key())})


def _another_number(chain: Keychain) -> Rotation:
    return chain.rotations[0].model_copy(update={"number": 2})


def _another_day(chain: Keychain) -> Rotation:
    return chain.rotations[0].model_copy(update={"date": "2020-01-01"})


def _back_to_itself(chain: Keychain) -> Rotation:
    return chain.rotations[0].model_copy(update={"new": chain.rotations[0].old})


@pytest.mark.parametrize("forge", [_another_signer, _another_new_key, _another_number, _another_day, _back_to_itself])
def test_a_forged_chain_is_refused(
    tmp_path: Path, chain: Keychain, old: ed25519.SigningKey, new: ed25519.SigningKey, forge: object
) -> None:
    site = tmp_path / "site"
    take(make_bundle(tmp_path, old), site)
    forged = Keychain(rotations=[forge(chain)])  # type: ignore[operator]
    with pytest.raises(IntegrityError, match=r"keys\.json"):
        take(make_bundle(tmp_path, new, version="2.0", chain=forged), site)
    assert len(Store(site).imported()) == 1


def test_a_chain_of_others_does_not_travel_with_a_bundle(
    tmp_path: Path, key: Ed25519PrivateKey, chain: Keychain
) -> None:
    bundle = make_bundle(tmp_path, key, chain=chain)
    for known in (None, key.public_key()):
        with pytest.raises(IntegrityError, match="does not belong to the key"):
            verify(bundle, known)


def test_what_is_no_chain_is_refused() -> None:
    with pytest.raises(IntegrityError, match="not a chain of keys"):
        keychain.decode(b"[]", "keys.json")


def test_a_chain_that_leaves_out_what_the_site_knows_is_refused(
    tmp_path: Path, path: Path, chain: Keychain, old: ed25519.SigningKey, new: ed25519.SigningKey
) -> None:
    """Anyone can sign that the present key replaced theirs: the keys that it replaced must stay refused."""
    site = tmp_path / "site"
    take(make_bundle(tmp_path, old), site)
    take(make_bundle(tmp_path, new, version="2.0", chain=chain), site)
    keychain.rotate(path, DAY)
    latest = ed25519.read_key(path)
    stranger = Ed25519PrivateKey.generate()
    for number, end in enumerate((new, latest), 3):
        forged = [keychain.statement(stranger, new.public_key(), 1, DAY)]
        forged += keychain.of_key(path, latest).rotations[1:] if end == latest else []
        swapped = make_bundle(tmp_path, end, version=f"{number}.0", chain=Keychain(rotations=forged))
        before = contents(site)
        with pytest.raises(IntegrityError, match=r"keys\.json: the chain of keys is not the one that this site knows"):
            take(swapped, site)
        assert contents(site) == before
    whole = keychain.of_key(path, latest)
    assert take(make_bundle(tmp_path, latest, version="5.0", chain=whole), site).changed
    assert keychain.read(Store(site).keychain) == whole


def test_a_stranger_cannot_write_the_time_before_the_key_that_a_site_knows(
    tmp_path: Path, path: Path, chain: Keychain, old: ed25519.SigningKey, new: ed25519.SigningKey
) -> None:
    """Anyone can sign that the maker's key replaced theirs, and put that on a medium."""
    stranger = Ed25519PrivateKey.generate()
    said = keychain.encode(Keychain(rotations=[keychain.statement(stranger, old.public_key(), 1, DAY)]))
    bundle = make_bundle(tmp_path, old)
    ways: tuple[dict[str, Any], ...] = ({"key": old.public_key()}, {"trust_first": True})
    for number, words in enumerate(ways):
        root = tmp_path / f"site-{number}"
        (bundle / bundles.KEYS).write_bytes(said)
        # once new, once held already
        assert take(bundle, root, **words).changed
        assert not take(bundle, root).changed
        assert keychain.read(Store(root).keychain).rotations == []
        assert take(make_bundle(tmp_path, new, version="2.0", chain=chain), root).changed, "the maker's own rotation"
        assert keychain.read(Store(root).keychain) == chain
        for identity in Store(root).imported():
            require_sound(Store(root), identity, read=True)
        forged = make_bundle(tmp_path, stranger, version="3.0")
        with pytest.raises(IntegrityError, match="does not belong to the key"):
            take(forged, root)
    keychain.rotate(path, DAY)
    latest = ed25519.read_key(path)
    whole = keychain.of_key(path, latest)
    late = tmp_path / "late"
    take(make_bundle(tmp_path / "late-2", new, version="2.0", chain=chain), late, key=new.public_key())
    for version in ("4.0", "5.0"):
        assert take(make_bundle(tmp_path, latest, version=version, chain=whole), late).changed
    assert keychain.read(Store(late).keychain).rotations == whole.rotations[1:], "from the key on that it was given"


def test_the_word_of_an_administrator_replaces_a_chain_as_well(
    tmp_path: Path, chain: Keychain, old: ed25519.SigningKey, new: ed25519.SigningKey
) -> None:
    """A site that a stranger's statement came into before heals so."""
    root, stranger = tmp_path / "site", Ed25519PrivateKey.generate()
    bundle = make_bundle(tmp_path, old)
    take(bundle, root, key=old.public_key())
    poison = Keychain(rotations=[keychain.statement(stranger, old.public_key(), 1, DAY)])
    Store(root).keychain.write_bytes(keychain.encode(poison))
    rotated = make_bundle(tmp_path, new, version="2.0", chain=chain)
    with pytest.raises(IntegrityError, match=r"the chain of keys is not the one.*--replace-key"):
        take(rotated, root)
    done = take(rotated, root, key=new.public_key(), replace_key=True)
    assert done.trust
    assert done.trust.instead_of == ed25519.fingerprint(old.public_key())
    assert not Store(root).keychain.exists()
    # and by the same key
    root = tmp_path / "other"
    take(bundle, root, key=old.public_key())
    Store(root).keychain.write_bytes(keychain.encode(poison))
    take(make_bundle(tmp_path, old, version="3.0"), root, key=old.public_key(), replace_key=True)
    assert not Store(root).keychain.exists()
    assert take(make_bundle(tmp_path, new, version="4.0", chain=chain), root).changed
    assert keychain.read(Store(root).keychain) == chain


def test_a_chain_of_anybody_is_short(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    """It is read before it is known whose it is."""
    keys = [*(Ed25519PrivateKey.generate() for _ in range(65)), key]
    steps = [keychain.statement(a, b.public_key(), at, DAY) for at, (a, b) in enumerate(itertools.pairwise(keys), 1)]
    bundle = make_bundle(tmp_path, key, chain=Keychain(rotations=steps))
    with pytest.raises(IntegrityError, match=r"keys\.json: names more than 64 keys"):
        verify(bundle, key.public_key())
    with (bundle / bundles.KEYS).open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(IntegrityError, match=r"keys\.json: is longer than any file of its kind"):
        verify(bundle, key.public_key())


def test_no_rotation_makes_a_chain_that_nobody_takes(
    path: Path, new: ed25519.SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keychain, "ROTATIONS", 1, raising=False)
    before = contents(path.parent)
    with pytest.raises(ConflictError, match=r"replaced 1 times.*start from scratch"):
        keychain.rotate(path, DAY)
    assert contents(path.parent) == before
    monkeypatch.setattr(keychain, "ROTATIONS", 2, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda self, to: pytest.fail("stop") if to == path else self.rename(to))
        with pytest.raises(pytest.fail.Exception):
            keychain.rotate(path, DAY)
    assert keychain.rotate(path, DAY).number == 2, "what was begun is brought to its end"
