"""The import of a bundle: once, whole or not at all, and what is told where it cannot be."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, IntegrityError, UnavailableError
from reservoir.bundle import bundles
from reservoir.contents.artifact import ImageArtifact
from reservoir.contents.target import SetVersions
from reservoir.download.cache import flush
from reservoir.intake import arrival, receipt
from reservoir.intake import store as stores
from reservoir.intake.copies import Copies
from reservoir.intake.store import Store
from reservoir.intake.take import Imported
from reservoir.media import split
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import contents, flip_bit, make_bundle, take


def test_a_bundle_is_imported_once(site: Path, bundle: Path) -> None:
    store = Store(site)
    (identity,) = store.imported()
    held = store.imported()[identity]
    assert {path.name for path in store.blobs.iterdir()} == held.sizes().keys()
    assert not store.incoming.exists()
    before = contents(site)
    assert take(bundle, site) == Imported(identity, changed=False)
    assert contents(site) == before
    assert store.keys.stat().st_mode & 0o777 == 0o700


def test_the_documents_of_a_bundle_stay_with_its_record(site: Path, bundle: Path) -> None:
    (identity,) = Store(site).imported()
    kept = Store(site).bundles / identity / "sbom.cdx.json"
    assert kept.read_bytes() == (bundle / "sbom.cdx.json").read_bytes()


def test_a_lost_blob_comes_back_with_the_next_import(site: Path, bundle: Path) -> None:
    next(Store(site).blobs.iterdir()).unlink()
    before = contents(site)
    assert take(bundle, site).changed
    assert contents(site).keys() > before.keys()


@pytest.mark.parametrize("filename", ["demo-1.0-py3-none-any.whl", "demo_python_1.json"])
def test_a_bundle_with_a_flipped_bit_changes_nothing(site: Path, second: Path, filename: str) -> None:
    before = contents(site)
    listed = bundles.decode((second / bundles.LIST).read_bytes(), "x").artifacts
    flip_bit(second / bundles.BLOBS / next(a.sha256 for a in listed if a.filename == filename))
    with pytest.raises(IntegrityError, match=f"{filename} was changed"):
        take(second, site)
    assert contents(site) == before


def test_a_flip_in_a_blob_that_the_site_has_is_found_too(site: Path, bundle: Path) -> None:
    shutil.rmtree(next(Store(site).bundles.iterdir()))
    before = contents(site)
    flip_bit(next((bundle / bundles.BLOBS).iterdir()))
    with pytest.raises(IntegrityError, match="was changed"):
        take(bundle, site)
    assert contents(site) == before


def test_an_interrupted_import_keeps_what_the_site_had_and_goes_on(
    site: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(site)
    copy = Copies.copy
    copied: list[Path] = []

    def interrupted(self: Copies, source: Path, destination: Path, sha256: str, *longest: int) -> str:
        if copied:
            raise KeyboardInterrupt
        copied.append(destination)
        return copy(self, source, destination, sha256, *longest)

    monkeypatch.setattr(Copies, "copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        take(second, site)
    left = contents(site)
    assert {name: left[name] for name in before} == before
    assert all(name.startswith("incoming/") for name in left.keys() - before.keys())
    assert copied[0].exists()

    again: list[Path] = []

    def noted(self: Copies, source: Path, destination: Path, sha256: str, *longest: int) -> str:
        again.append(destination)
        return copy(self, source, destination, sha256, *longest)

    monkeypatch.setattr(Copies, "copy", noted)
    assert take(second, site).changed
    assert copied[0] not in again
    assert len(Store(site).imported()) == 2
    assert not Store(site).incoming.exists()


def test_what_an_import_of_another_bundle_left_is_forgotten(site: Path, second: Path) -> None:
    old = Store(site).incoming / "other-1-000000000000"
    old.mkdir(parents=True)
    (old / "blob").write_text("x")
    take(second, site)
    assert not old.exists()


def test_a_blob_that_was_damaged_while_it_waited_is_copied_again(site: Path, second: Path) -> None:
    bundle = bundles.decode((second / bundles.LIST).read_bytes(), "x")
    arriving = Store(site).incoming / bundles.identity(bundle, (second / bundles.LIST).read_bytes())
    arriving.mkdir(parents=True)
    sha256 = bundle.of_kind(ImageArtifact)[0].sha256
    (arriving / sha256).write_bytes(b"half")
    take(second, site)
    assert (Store(site).blobs / sha256).read_bytes() == (second / bundles.BLOBS / sha256).read_bytes()


def test_a_disk_that_is_too_small_is_told_before_anything_is_copied(
    site: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    before = contents(site)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 10, 1_000_000))
    with pytest.raises(UnavailableError, match="the bundle needs 2 MB, only 1 MB are free"):
        take(second, site)
    assert contents(site) == before


def test_a_disk_that_fills_up_meanwhile_leaves_nothing_behind(
    site: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(site)

    def full(self: Copies, source: Path, destination: Path, sha256: str) -> str:
        destination.with_suffix(".partial").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Copies, "copy", full)
    with pytest.raises(UnavailableError, match="no space left on the disk"):
        take(second, site)
    assert contents(site) == before


def test_a_first_import_that_is_refused_leaves_no_store(tmp_path: Path, bundle: Path, key: Ed25519PrivateKey) -> None:
    root = tmp_path / "new"
    with pytest.raises(IntegrityError):
        take(bundle, root, key=Ed25519PrivateKey.generate().public_key())
    assert not root.exists()
    # what an installer left there is not the import's
    (root / "keys").mkdir(parents=True)
    Store(root).pinned_key.write_bytes(ed25519.encode_public(Ed25519PrivateKey.generate().public_key()))
    before = contents(root)
    with pytest.raises(IntegrityError):
        take(bundle, root)
    assert contents(root) == before
    assert {path.name for path in root.iterdir()} == {"keys"}
    assert take(bundle, root, key=key.public_key(), replace_key=True).changed


def test_bundles_of_another_key_are_refused_until_the_key_is_given(site: Path, tmp_path: Path) -> None:
    other = Ed25519PrivateKey.generate()
    foreign = make_bundle(tmp_path / "foreign", other, version="3.0", body="foreign")
    before = contents(site)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        take(foreign, site)
    assert contents(site) == before
    with pytest.raises(IntegrityError, match=r"this site trusts the key .*--replace-key"):
        take(foreign, site, key=other.public_key())
    assert contents(site) == before
    assert take(foreign, site, key=other.public_key(), replace_key=True).changed


def test_two_changes_at_once_are_refused(site: Path, bundle: Path) -> None:
    with Store(site).changing(), pytest.raises(ConflictError, match="another import or publication is running"):
        take(bundle, site)


def test_the_key_given_to_the_installer_counts_until_the_site_has_one(
    tmp_path: Path, key: Ed25519PrivateKey, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reservoir.settings.sys.prefix", str(tmp_path))
    root = tmp_path / "new-site"
    (tmp_path / "bundle.pub").write_bytes(ed25519.public_pem(Ed25519PrivateKey.generate()))
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        take(bundle, root)
    assert not Store(root).pinned_key.exists()
    assert take(bundle, root, key=key.public_key(), replace_key=True).changed
    assert not take(bundle, root).changed


def test_what_was_said_to_be_done_is_on_the_disk(
    tmp_path: Path, bundle: Path, second: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders keep the names of their files only once they were waited for."""
    waited: set[Path] = set()

    def noted(paths: Iterable[Path]) -> None:
        folders = list(paths)
        waited.update(folders)
        flush(folders)

    for module in (arrival, stores, receipt):
        monkeypatch.setattr(module, "flush", noted)
    root = tmp_path / "other-site"
    store = Store(root)
    medium, *_ = split.split(bundle, 2_300_000, key, tmp_path)
    take(medium, root)
    (arrived,) = store.incoming.iterdir()
    assert {arrived, arrived / "record", store.incoming} <= waited
    newer = take(second, root).identity
    take(bundle, root, allow_rollback=True)
    assert store.bundles / newer in waited
    waited.clear()
    take(second, root)
    assert store.bundles / newer in waited
    receipt.write(root, 1_767_323_045)
    assert store.keys in waited
    store.mark_rollback(1)
    assert root in waited


def test_import_warns_of_another_line_of_what_version_sets_bind(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    root, warnings = tmp_path / "site", []
    for version in ("535.309.01-1", "550.163.01-1"):
        bound = SetVersions(name="driver", target="debian12", packages={"nvidia-kernel-dkms": version})
        folder = make_bundle(tmp_path / "made", key, version=version[:3], made=[], version_sets=[bound])
        warnings.append(take(folder, root).warning)
    assert warnings[0] == ""
    assert "it brings nvidia-kernel-dkms 550.163.01 for bookworm amd64, where this site holds 535.309.01" in warnings[1]
    assert "nodes take it with their next deploy or `apt upgrade`" in warnings[1]


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z"])
def test_a_list_of_a_year_that_no_clock_has_is_refused_before_anything_comes(
    tmp_path: Path, key: Ed25519PrivateKey, created: str
) -> None:
    folder, root = make_bundle(tmp_path, key), tmp_path / "new-site"
    path = folder / bundles.LIST
    path.write_bytes(path.read_bytes().replace(b"2026-01-02T03:04:05Z", created.encode()))
    (folder / bundles.SIGNATURE).write_bytes(ed25519.sign(key, path.read_bytes()))
    with pytest.raises(IntegrityError, match="created"):
        take(folder, root)
    assert not Store(root).imported()
