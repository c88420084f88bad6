"""What the removal of a bundle takes, what it never takes, and what an interruption leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import files
from common.errors import ConflictError, NotFoundError
from reservoir.bundle import bundles
from reservoir.intake.store import Store
from reservoir.publication import prune, removal
from reservoir.publication.publish import publish
from tests.unit.reservoir.parts import make_bundle, take


@pytest.fixture
def site(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    """A site that serves one bundle, and holds another that was never published."""
    root = tmp_path / "site"
    take(make_bundle(tmp_path / "made", key, body="served"), root)
    publish(root)
    take(make_bundle(tmp_path / "made", key, name="other", body="by mistake"), root)
    return root


def hashes(root: Path) -> set[str]:
    return {path.name for path in Store(root).blobs.iterdir()}


def blobs(folder: Path) -> set[str]:
    return set(bundles.decode((folder / bundles.LIST).read_bytes(), str(folder)).sizes())


def needed(root: Path) -> set[str]:
    return {blob for bundle in Store(root).imported().values() for blob in bundle.sizes()}


def names(root: Path) -> list[str]:
    return sorted(bundle.name for bundle in Store(root).imported().values())


def test_what_no_publication_needs_goes_with_the_blobs_that_it_alone_has(site: Path) -> None:
    before = files.space([site])
    gone = removal.remove(site, "other")
    assert [identity.partition("-")[0] for identity in gone.bundles] == ["other"]
    assert names(site) == ["small"]
    assert hashes(site) == needed(site)
    after = files.space([site])
    assert before.own + before.shared - after.own - after.shared == gone.size > 2_000_000
    assert not publish(site).changed


def test_a_rehearsal_says_the_same_and_removes_nothing(site: Path) -> None:
    before = sorted(site.rglob("*"))
    told = removal.remove(site, "other", rehearse=True)
    assert sorted(site.rglob("*")) == before
    assert removal.remove(site, "other") == told


def test_an_identity_names_one_of_several_bundles_of_a_name(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    newer = take(make_bundle(tmp_path / "made", key, name="other", version="2.0", body="more"), site).identity
    assert removal.remove(site, newer).bundles == [newer]
    assert names(site) == ["other", "small"]
    assert hashes(site) == needed(site)


def test_blobs_stay_that_another_bundle_has_too(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    made = make_bundle(tmp_path / "made", key, name="third", body="by mistake")
    third = blobs(made)
    take(made, site)
    gone = removal.remove(site, "other")
    assert third & hashes(site) == third
    assert not third & set(gone.blobs)


def test_what_a_publication_needs_stays_and_the_publication_is_named(site: Path) -> None:
    with pytest.raises(ConflictError, match=r"small-1\.0.* is needed by publication 1.*say --withdraw and publish"):
        removal.remove(site, "small")
    assert names(site) == ["other", "small"]
    assert hashes(site) == needed(site)


def test_what_is_withdrawn_is_left_out_of_the_next_publication_and_pruned_with_the_last(site: Path) -> None:
    gone = removal.remove(site, "small", withdraw=True)
    assert (gone.bundles, gone.blobs, gone.size) == ([], [], 0)
    assert gone.withdrawn == [name for name, bundle in Store(site).imported().items() if bundle.name == "small"]
    assert publish(site).bundles == [name for name, bundle in Store(site).imported().items() if bundle.name == "other"]
    assert names(site) == ["other", "small"]
    with pytest.raises(ConflictError, match="needed by publication 1"):
        removal.remove(site, "small")
    assert prune.prune(site, keep=1).bundles == gone.withdrawn
    assert names(site) == ["other"]


def test_what_was_withdrawn_counts_again_once_it_is_imported_again(site: Path, tmp_path: Path) -> None:
    before = Store(site).newest().keys()
    removal.remove(site, "small", withdraw=True)
    assert Store(site).newest().keys() != before
    assert take(next((tmp_path / "made").rglob("small-*/bundle.json")).parent, site).changed
    assert Store(site).newest().keys() == before


def test_the_last_bundle_cannot_be_withdrawn(site: Path) -> None:
    removal.remove(site, "other")
    with pytest.raises(ConflictError, match="nothing would be left to publish"):
        removal.remove(site, "small", withdraw=True)
    assert not publish(site).changed


@pytest.mark.parametrize("withdraw", [True, False])
def test_the_last_bundle_that_counts_cannot_go_behind_one_that_was_withdrawn(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey, withdraw: bool
) -> None:
    removal.remove(site, "other")
    newer = take(make_bundle(tmp_path / "made", key, version="2.0", body="newer"), site).identity
    (older,) = set(Store(site).imported()) - {newer}
    removal.remove(site, older, withdraw=True)
    with pytest.raises(ConflictError, match="nothing would be left to publish"):
        removal.remove(site, "small" if withdraw else newer, withdraw=withdraw)
    assert publish(site).bundles == [newer]


def test_the_last_bundle_goes_where_nothing_was_published(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    only = take(make_bundle(tmp_path / "made", key), tmp_path / "site").identity
    assert removal.remove(tmp_path / "site", "small").bundles == [only]


def test_an_older_bundle_takes_the_place_of_the_one_that_is_withdrawn(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    removal.remove(site, "other")
    (older,) = Store(site).newest()
    newer = take(make_bundle(tmp_path / "made", key, version="2.0", body="newer"), site).identity
    publish(site)
    assert removal.remove(site, newer, withdraw=True).withdrawn == [newer]
    assert publish(site).bundles == [older]
    with pytest.raises(ConflictError, match="nothing would be left to publish"):
        removal.remove(site, "small", withdraw=True)


def test_parts_of_a_bundle_that_never_became_whole_go_too(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    made = make_bundle(tmp_path / "made", key, name="third")
    arriving = Store(site).incoming / made.name
    shutil.copytree(made, arriving / "record")
    assert removal.remove(site, "third").bundles == [arriving.name]
    assert not Store(site).incoming.exists()
    assert not [path for path in site.rglob(".*") if path.name != ".lock"]


def test_blobs_stay_that_an_arriving_bundle_counts_on(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    arriving = make_bundle(tmp_path / "made", key, name="third", body="by mistake")
    record = Store(site).incoming / arriving.name / "record"
    record.mkdir(parents=True)
    shutil.copy(arriving / bundles.LIST, record)
    shared = blobs(arriving) & hashes(site)
    assert shared
    assert not shared & set(removal.remove(site, "other").blobs)
    assert shared <= hashes(site)


def test_a_name_that_is_not_there_is_answered_with_those_that_are(site: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no bundle othr.*name one of those: other, small"):
        removal.remove(site, "othr")


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing was imported yet"):
        removal.remove(tmp_path, "other")
    assert not list(tmp_path.iterdir())


def test_a_record_that_cannot_be_read_goes_by_its_identity_and_prune_takes_its_blobs(site: Path) -> None:
    (identity,) = (name for name, bundle in Store(site).imported().items() if bundle.name == "other")
    (Store(site).bundles / identity / bundles.LIST).unlink()
    assert removal.remove(site, identity, rehearse=True) == removal.remove(site, identity)
    assert names(site) == ["small"]
    assert hashes(site) > needed(site)
    prune.prune(site)
    assert hashes(site) == needed(site)


def test_a_record_that_cannot_be_read_and_was_published_goes_only_where_that_is_said(site: Path) -> None:
    (identity,) = (name for name, bundle in Store(site).imported().items() if bundle.name == "small")
    served = sorted(path for path in Store(site).current.rglob("*") if path.is_file())
    (Store(site).bundles / identity / bundles.LIST).write_bytes(b"{}")
    with pytest.raises(ConflictError, match="is needed by publication 1"):
        removal.remove(site, identity)
    removal.remove(site, identity, withdraw=True)
    assert names(site) == ["other"]
    assert sorted(path for path in Store(site).current.rglob("*") if path.is_file()) == served
    assert publish(site).changed


def unreadable(root: Path, name: str) -> str:
    """Damage the list of the one bundle of a name, and return its identity."""
    (record,) = Store(root).bundles.glob(f"{name}-*")
    (record / bundles.LIST).write_text("{")
    return record.name


def test_an_unreadable_record_whose_removal_was_cut_off_goes_with_the_next_run(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = unreadable(site, "other")

    def cut(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", cut)
        with pytest.raises(KeyboardInterrupt):
            removal.remove(site, identity)
    assert removal.remove(site, identity, rehearse=True).bundles == [identity]
    gone = removal.remove(site, identity)
    assert gone.bundles == [identity]
    assert gone.size > 0
    assert not list(Store(site).bundles.glob(f"*{identity}*"))
    with pytest.raises(NotFoundError, match=f"holds no bundle {identity}"):
        removal.remove(site, identity)


def test_a_path_is_no_identity(site: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup-202611271200"
    backup.mkdir()
    for name in (str(backup), f"../{backup.name}", f"x/../../../{backup.name}"):
        with pytest.raises(NotFoundError, match="the site holds no bundle"):
            removal.remove(site, name)
    assert backup.is_dir()
