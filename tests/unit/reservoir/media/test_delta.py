from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, IntegrityError
from reservoir.bundle import bundles, medium
from reservoir.bundle.verification import verify
from reservoir.contents.artifact import PythonArtifact
from reservoir.download import cache
from reservoir.download.cache import digest
from reservoir.intake.receipt import write as write_receipt
from reservoir.intake.store import Store
from reservoir.intake.take import take_held
from reservoir.intake.trust import Spoken
from reservoir.media import delta, receipt, split
from reservoir.publication import prune
from reservoir.publication.publish import publish
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import artifact, contents, flip_bit, make_bundle, parts, take, wheel

NOW = 1_767_323_045


@pytest.fixture
def full(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    """The next bundle: another wheel, all else as before."""
    package = wheel(tmp_path, version="1.1")
    kept = [part for part in parts(tmp_path / "next") if part[0].kind != "python"]
    return make_bundle(
        tmp_path / "made", key, version="2.0", made=[(artifact(package, PythonArtifact, "demo", "1.1"), package), *kept]
    )


def delta_for(site: Path, full: Path, key: Ed25519PrivateKey) -> Path:
    path = site.parent / "receipt.json"
    path.write_bytes(write_receipt(site, NOW).content)
    return delta.make(full, *receipt.read(path), key)


def blobs(folder: Path) -> set[str]:
    return {path.name for path in (folder / bundles.BLOBS).iterdir()}


def test_a_delta_carries_what_the_site_lacks_and_the_very_same_list(
    site: Path, full: Path, key: Ed25519PrivateKey
) -> None:
    made = delta_for(site, full, key)
    assert made.name.startswith("small-2.0-since-")
    assert blobs(made) == blobs(full) - {path.name for path in Store(site).blobs.iterdir()}
    assert len(blobs(made)) == 1
    for name in ("bundle.json", "bundle.json.sig", "penstock.pub", "sbom.cdx.json", "install.sh", "bootstrap.py"):
        assert (made / name).read_bytes() == (full / name).read_bytes()
    assert (made / bundles.BLOBS / blobs(made).pop()).stat().st_nlink == 2
    assert verify(made, key.public_key()).identity == verify(full).identity


def test_a_delta_is_imported_like_the_full_bundle(
    tmp_path: Path, site: Path, bundle: Path, full: Path, key: Ed25519PrivateKey
) -> None:
    made = delta_for(site, full, key)
    done = take(made, site)
    assert (done.changed, done.complete) == (True, True)
    other = tmp_path / "other"
    take(bundle, other)
    assert take(full, other).identity == done.identity
    written = {name: text for name, text in contents(site).items() if not name.startswith("keys/")}
    assert written == {name: text for name, text in contents(other).items() if not name.startswith("keys/")}
    assert not take(made, site).changed
    assert not take(full, site).changed


def test_a_second_delta_of_nothing_new_is_empty(site: Path, full: Path, key: Ed25519PrivateKey) -> None:
    take(full, site)
    made = delta_for(site, full, key)
    assert blobs(made) == set()
    verify(made)


def test_another_site_is_told_what_it_lacks(tmp_path: Path, site: Path, full: Path, key: Ed25519PrivateKey) -> None:
    made = delta_for(site, full, key)
    empty = tmp_path / "empty"
    with pytest.raises(ConflictError, match=r"made for receipt 1.*does not hold .*hello_1.0_amd64.deb.*new receipt"):
        take(made, empty)
    assert Store(empty).imported() == {}
    assert not Store(empty).incoming.exists()
    assert not Store(empty).pinned_key.exists()


def test_a_base_that_is_damaged_is_told_and_nothing_changes(site: Path, full: Path, key: Ed25519PrivateKey) -> None:
    made = delta_for(site, full, key)
    flip_bit(next(Store(site).blobs / a.sha256 for a in verify(full).bundle.artifacts if a.name == "hello"))
    before = contents(site)
    with pytest.raises(IntegrityError, match=r"hello_1.0_amd64.deb was damaged at the site.*new receipt"):
        take(made, site)
    assert contents(site) == before


def test_what_a_refused_bundle_brought_says_nothing_of_what_the_site_holds(
    tmp_path: Path, site: Path, full: Path, key: Ed25519PrivateKey
) -> None:
    """One run takes both: the first brings a good copy of what is damaged at the site, and goes with it."""
    made = delta_for(site, full, key)
    listed = {artifact.name: artifact.sha256 for artifact in verify(full).bundle.artifacts}
    flip_bit(Store(site).blobs / listed["hello"])
    other = make_bundle(
        tmp_path / "other",
        key,
        version="1.5",
        made=[each for each in parts(tmp_path / "kept") if each[0].kind != "python"],
    )
    flip_bit(other / bundles.BLOBS / listed["notes.txt"])
    before = contents(site)
    store = Store(site)
    with store.changing():
        with pytest.raises(IntegrityError, match=r"notes.txt was changed"):
            take_held(store, other, Spoken())
        with pytest.raises(IntegrityError, match=r"hello_1.0_amd64.deb was damaged at the site"):
            take_held(store, made, Spoken())
    assert contents(site) == before


def test_a_delta_with_a_new_receipt_mends_a_damaged_store(site: Path, full: Path, key: Ed25519PrivateKey) -> None:
    damaged = Store(site).blobs / next(a.sha256 for a in verify(full).bundle.artifacts if a.name == "hello")
    flip_bit(damaged)
    assert take(delta_for(site, full, key), site).complete
    assert hashlib.sha256(damaged.read_bytes()).hexdigest() == damaged.name


@pytest.mark.parametrize("change", ["blob", "description", "signature", "more"])
def test_a_delta_that_was_changed_is_refused(site: Path, full: Path, key: Ed25519PrivateKey, change: str) -> None:
    made = delta_for(site, full, key)
    before = contents(site)
    (blob,) = blobs(made)
    if change == "blob":
        path = made / bundles.BLOBS / blob
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        flip_bit(path)
    elif change == "description":
        path = made / medium.DESCRIPTION
        path.write_text(path.read_text().replace(blob, ""))
    elif change == "signature":
        (made / medium.DESCRIPTION_SIGNATURE).unlink()
    else:
        (made / bundles.BLOBS / ("0" * 64)).write_text("more")
    for act in (lambda: verify(made), lambda: take(made, site)):
        with pytest.raises(IntegrityError):
            act()
    assert contents(site) == before


def described(made: Path, key: Ed25519PrivateKey, **changes: object) -> None:
    """Change what a folder says about itself, and sign that with the maker's key."""
    content = json.loads((made / medium.DESCRIPTION).read_bytes()) | changes
    (made / medium.DESCRIPTION).write_text(json.dumps(content))
    (made / medium.DESCRIPTION_SIGNATURE).write_bytes(ed25519.sign(key, (made / medium.DESCRIPTION).read_bytes()))


@pytest.mark.parametrize(
    "changes",
    [{"bundle": "0" * 64}, {"number": 2}, {"files": [["0" * 64]]}, {"since": None}, {"cut": {"0" * 64: []}}],
)
def test_a_description_that_does_not_fit_the_bundle_is_refused(
    site: Path, full: Path, key: Ed25519PrivateKey, changes: dict[str, object]
) -> None:
    made = delta_for(site, full, key)
    described(made, key, **changes)
    with pytest.raises(IntegrityError, match="the description of the medium does not fit the bundle"):
        verify(made)


def test_parts_are_signed_with_the_key_of_the_bundle(tmp_path: Path, site: Path, full: Path) -> None:
    other = Ed25519PrivateKey.generate()
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        delta_for(site, full, other)


def test_a_delta_is_split_like_a_bundle(tmp_path: Path, site: Path, key: Ed25519PrivateKey) -> None:
    full = make_bundle(tmp_path / "made", key, version="3.0", body="all new")
    made = delta_for(site, full, key)
    media = split.split(made, 1_500_000, key, tmp_path / "media")
    assert len(media) > 1
    done = [take(each, site) for each in reversed(media)]
    assert [each.complete for each in done] == [False] * (len(media) - 1) + [True]
    with pytest.raises(ConflictError, match="does not hold"):
        take(
            split.split(
                delta_for(site, make_bundle(tmp_path / "made", key, version="4.0", body="all new"), key),
                1_500_000,
                key,
                tmp_path / "media",
            )[0],
            tmp_path / "empty",
        )


def test_a_delta_of_the_very_bundle_that_the_site_holds_mends_it(
    site: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    damaged = Store(site).blobs / next(a.sha256 for a in verify(bundle).bundle.artifacts if a.name == "hello")
    flip_bit(damaged)
    made = delta_for(site, bundle, key)
    assert blobs(made) == {damaged.name}
    assert take(made, site).changed
    assert hashlib.sha256(damaged.read_bytes()).hexdigest() == damaged.name
    assert not take(made, site).changed


def test_what_a_delta_mends_is_mended_where_it_is_served(site: Path, bundle: Path, key: Ed25519PrivateKey) -> None:
    publish(site)
    served = next((Store(site).current / "apt").rglob("hello_1.0_amd64.deb"))
    good = served.read_bytes()
    flip_bit(Store(site).blobs / hashlib.sha256(good).hexdigest())
    assert served.read_bytes() != good
    take(delta_for(site, bundle, key), site)
    assert served.read_bytes() == good
    assert served.samefile(Store(site).blobs / hashlib.sha256(good).hexdigest())
    assert prune.prune(site).nothing


def test_a_delta_mends_what_the_disk_does_not_give(
    site: Path, bundle: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Store(site).blobs / next(a.sha256 for a in verify(bundle).bundle.artifacts if a.name == "hello")
    scratched = bad.stat().st_ino

    def read(path: Path) -> str:
        if path.stat().st_ino == scratched:
            raise OSError(errno.EIO, "Input/output error")
        return digest(path)

    monkeypatch.setattr(cache, "digest", read)
    made = delta_for(site, bundle, key)
    kept = made / bundles.BLOBS / bad.name
    content = kept.read_bytes()
    assert take(made, site).changed
    assert bad.read_bytes() == content
