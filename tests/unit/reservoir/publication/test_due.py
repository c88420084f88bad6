"""Bundles that a site can be deployed from without their media."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import IntegrityError, NotFoundError
from reservoir.bundle import bundles
from reservoir.intake import take as intake
from reservoir.intake.store import Store
from reservoir.publication.due import due, require_sound
from reservoir.publication.publish import rollback
from reservoir.signing import ed25519, keychain
from tests.unit.reservoir.parts import flip_bit, make_bundle, publish_versions, take


@pytest.fixture
def store(tmp_path: Path, key: Ed25519PrivateKey) -> Store:
    """Of a site that published two versions of one bundle."""
    return Store(publish_versions(tmp_path / "site", key, 2))


def test_it_is_the_newest_unless_an_administrator_went_back(store: Store) -> None:
    assert [bundle.version for bundle in due(store).values()] == ["2.0"]
    rollback(store.root)
    assert [bundle.version for bundle in due(store).values()] == ["1.0"]


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nothing was imported yet.*--bundle"):
        due(Store(tmp_path / "nothing"))


def test_what_is_whole_is_sound(store: Store) -> None:
    told: list[tuple[int, int]] = []
    (identity,) = due(store)
    require_sound(store, identity, read=True, progress=lambda _, done=0, total=0: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0


def blob(store: Store, identity: str) -> Path:
    return store.blobs / max(store.imported()[identity].sizes())


def test_a_file_that_is_gone_or_too_short_is_named(store: Store) -> None:
    (identity,) = due(store)
    path = blob(store, identity)
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(IntegrityError, match=f"{identity}: .* is missing. Hint: carry the bundle here again"):
        require_sound(store, identity, read=False)
    path.write_bytes(content[:-1])
    with pytest.raises(IntegrityError, match="is damaged"):
        require_sound(store, identity, read=False)


def test_a_file_of_another_content_is_found_by_reading_it(store: Store) -> None:
    (identity,) = due(store)
    flip_bit(blob(store, identity))
    require_sound(store, identity, read=False)
    with pytest.raises(IntegrityError, match="is damaged"):
        require_sound(store, identity, read=True)


@pytest.mark.parametrize("name", [bundles.LIST, bundles.SIGNATURE])
def test_a_record_that_was_changed_is_refused(store: Store, name: str) -> None:
    (identity,) = due(store)
    flip_bit(store.bundles / identity / name)
    with pytest.raises(IntegrityError):
        require_sound(store, identity, read=False)


def test_the_list_of_another_bundle_of_that_maker_is_refused(store: Store) -> None:
    """It is signed, and all that it names is there."""
    first, second = sorted(store.imported())
    for name in (bundles.LIST, bundles.SIGNATURE):
        (store.bundles / second / name).write_bytes((store.bundles / first / name).read_bytes())
    with pytest.raises(IntegrityError, match="the list is that of another bundle"):
        require_sound(store, second, read=False)


def test_what_an_older_key_of_the_maker_signed_is_sound_after_a_rotation(tmp_path: Path) -> None:
    path, store = tmp_path / "signing.key", Store(tmp_path / "site")
    first = take(make_bundle(tmp_path / "made", ed25519.new_key(path)), store.root).identity
    keychain.rotate(path, 0)
    new = ed25519.read_key(path)
    other = make_bundle(tmp_path / "made", new, name="other", chain=keychain.of_key(path, new))
    take(other, store.root)
    require_sound(store, first, read=False)
    flip_bit(store.bundles / first / bundles.LIST)
    with pytest.raises(IntegrityError):
        require_sound(store, first, read=False)


def test_what_a_key_signed_that_was_given_up_is_not_and_the_hint_says_so(tmp_path: Path, store: Store) -> None:
    (identity,) = due(store)
    stranger = Ed25519PrivateKey.generate()
    other = make_bundle(tmp_path / "made", stranger, name="other")
    intake.take(other, store.root, key=stranger.public_key(), replace_key=True)
    with pytest.raises(IntegrityError, match="import one that the present key signed"):
        require_sound(store, identity, read=False)
