from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import IntegrityError
from reservoir.bundle import bundles
from reservoir.intake.store import Store
from reservoir.intake.take import take as take_by_key
from reservoir.publication.due import require_sound
from reservoir.publication.prune import prune
from reservoir.publication.publish import publish, rollback
from reservoir.publication.status import status
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import contents, take


def damage(path: Path) -> None:
    """Change a byte of a file, and not its length."""
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("name", [bundles.LIST, bundles.SIGNATURE, "sbom.cdx.json"])
@pytest.mark.parametrize("harm", [damage, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_record_that_was_damaged_is_whole_again_when_its_bundle_is_carried_here_again(
    site: Path, bundle: Path, name: str, harm: Callable[[Path], object]
) -> None:
    before = contents(site)
    harm(next(Store(site).bundles.iterdir()) / name)
    take(bundle, site)
    assert contents(site) == before


def test_a_blob_that_was_damaged_in_its_length_comes_again_with_its_bundle(site: Path, bundle: Path) -> None:
    before = contents(site)
    (identity,) = Store(site).imported()
    harmed = max(Store(site).imported()[identity].sizes())
    damage(Store(site).blobs / harmed)
    assert take(bundle, site).changed
    assert contents(site) == before
    require_sound(Store(site), identity, read=True)


def test_an_older_bundle_is_mended_and_counts_no_more_than_before(site: Path, bundle: Path, second: Path) -> None:
    (older,) = Store(site).imported()
    take(second, site)
    before = contents(site)
    damage(Store(site).blobs / max(Store(site).imported()[older].sizes()))
    take(bundle, site)
    assert contents(site) == before
    assert [bundle.version for bundle in Store(site).newest().values()] == ["2.0"]


def test_a_bundle_that_a_new_key_signed_again_has_the_signature_of_that_key(site: Path, bundle: Path) -> None:
    (identity,) = Store(site).imported()
    other = ed25519.new_key(site.parent / "other.key")
    (bundle / bundles.SIGNATURE).write_bytes(ed25519.sign(other, (bundle / bundles.LIST).read_bytes()))
    (bundle / bundles.PUBLIC_KEY).write_bytes(ed25519.encode_public(other.public_key()))
    take_by_key(bundle, site, key=other.public_key(), replace_key=True)
    require_sound(Store(site), identity, read=True)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Path.unlink, "the list of an imported bundle is missing"),
        (lambda path: path.write_bytes(b"{}"), "the list of an imported bundle is damaged"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\n"), "the list is that of another bundle"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_with_what_mends_it(
    site: Path, harm: Callable[[Path], object], said: str
) -> None:
    (identity,) = Store(site).imported()
    harm(Store(site).bundles / identity / bundles.LIST)
    for look in (status, prune, publish):
        with pytest.raises(IntegrityError, match=said) as refused:
            look(site)
        assert f"import this bundle again, or run `penstock reservoir remove {identity}`" in str(refused.value)


def test_what_a_disk_keeps_beside_the_records_is_none(site: Path) -> None:
    (Store(site).bundles / "lost+found").mkdir()
    assert len(Store(site).imported()) == 1


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("harmed", [True, False])
def test_what_only_mends_a_bundle_ends_no_rollback(
    site: Path, bundle: Path, second: Path, version: str, *, harmed: bool
) -> None:
    store = Store(site)
    publish(site)
    assert take(second, site).new
    publish(site)
    rollback(site)
    (identity,) = [name for name, held in store.imported().items() if held.version == version]
    if harmed:
        (notes,) = [one for one in store.imported()[identity].artifacts if one.filename == "notes.txt"]
        damage(store.blobs / notes.sha256)
    again = take({"1.0": bundle, "2.0": second}[version], site)
    assert (again.identity, again.changed, again.new) == (identity, harmed, False)
    assert publish(site, unattended=not again.new).rolled_back


def test_a_bundle_that_counts_again_is_new_whether_it_was_mended_or_not(site: Path, bundle: Path, second: Path) -> None:
    store = Store(site)
    (older,) = store.imported()
    take(second, site)
    (newer,) = store.newest()
    assert take(bundle, site, allow_rollback=True).new
    assert take(second, site).new
    assert list(store.newest()) == [newer]
    (notes,) = [one for one in store.imported()[older].artifacts if one.filename == "notes.txt"]
    damage(store.blobs / notes.sha256)
    assert take(bundle, site, allow_rollback=True).new
    assert list(store.newest()) == [older]


def test_a_site_policy_that_was_kept_before_stops_no_import(site: Path, second: Path) -> None:
    Store(site).security.mkdir()
    Store(site).policy.write_text("schema: 1\nleast: {npm: 5}\n")
    assert take(second, site).changed
