"""What prune removes, what it never removes, and what an interruption leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import files
from common.errors import InputError, IntegrityError, NotFoundError
from reservoir.bundle import bundles
from reservoir.bundle.bundles import decode
from reservoir.intake.store import Store
from reservoir.publication import prune
from reservoir.publication.publish import publish, rollback
from tests.unit.reservoir.parts import copied, make_bundle, publish_versions, take


@pytest.fixture(scope="module")
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: Ed25519PrivateKey) -> Path:
    return publish_versions(tmp_path_factory.mktemp("published") / "site", key, 5)


@pytest.fixture
def site(tmp_path: Path, published: Path) -> Path:
    """A site that published five versions of one bundle, each with contents of its own."""
    return copied(published, tmp_path / "site")


def hashes(root: Path) -> set[str]:
    return {path.name for path in Store(root).blobs.iterdir()}


def whole(root: Path) -> bool:
    """Say whether every record in the store has all its blobs."""
    return all(bundle.sizes().keys() <= hashes(root) for bundle in Store(root).imported().values())


def used(root: Path) -> int:
    space = files.space([root])
    return space.own + space.shared


def versions(root: Path) -> list[str]:
    return sorted(bundle.version for bundle in Store(root).imported().values())


def test_the_newest_publications_stay_and_everything_that_they_are_made_of(site: Path) -> None:
    before = used(site)
    gone = prune.prune(site, keep=2)
    assert gone.publications == [1, 2, 3]
    assert Store(site).numbers() == [4, 5]
    assert versions(site) == ["4.0", "5.0"]
    assert hashes(site) == {blob for bundle in Store(site).imported().values() for blob in bundle.sizes()}
    assert before - used(site) == gone.size > 6_000_000
    assert Store(site).current.resolve().name == "5"


def test_a_second_run_finds_nothing(site: Path) -> None:
    assert not prune.prune(site, keep=2).nothing
    assert prune.prune(site, keep=2).nothing


def test_a_rehearsal_says_the_same_and_removes_nothing(site: Path) -> None:
    before = sorted(site.rglob("*"))
    told = prune.prune(site, keep=2, rehearse=True)
    assert sorted(site.rglob("*")) == before
    assert prune.prune(site, keep=2) == told


def test_what_is_served_stays_however_old_it_is(site: Path) -> None:
    rollback(site, 1)
    prune.prune(site, keep=1)
    assert Store(site).numbers() == [1, 5]
    assert versions(site) == ["1.0", "5.0"]
    assert (Store(site).current / "files/notes.txt").read_text() == "notes body 1"
    assert whole(site)


def test_the_newest_bundle_stays_before_it_is_published(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    take(make_bundle(tmp_path / "made", key, version="6.0", body="body 6"), site)
    prune.prune(site, keep=1)
    assert versions(site) == ["5.0", "6.0"]
    assert whole(site)


def test_blobs_stay_that_an_arriving_bundle_counts_on(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    arriving = make_bundle(tmp_path / "made", key, name="other", version="1.0", body="body 1")
    record = Store(site).incoming / arriving.name / "record"
    record.mkdir(parents=True)
    (record / bundles.LIST).write_bytes((arriving / bundles.LIST).read_bytes())
    shared = decode((arriving / bundles.LIST).read_bytes(), "bundle.json").sizes().keys() & hashes(site)
    assert shared
    gone = prune.prune(site, keep=1)
    assert shared <= hashes(site)
    assert not shared & set(gone.blobs)
    assert gone.blobs
    assert record.is_dir()


def test_leftovers_of_interruptions_go(site: Path) -> None:
    store = Store(site)
    half = store.publications / ".6.new"
    (half / "files").mkdir(parents=True)
    blob = next(store.blobs.iterdir())
    (half / "files/linked").hardlink_to(blob)
    (half / "files/own").write_bytes(b"." * 1000)
    (store.blobs / f"{'0' * 64}.partial").write_bytes(b"." * 100)
    (store.bundles / ".small-1.0.old").mkdir()
    (site / ".current.new").symlink_to("publications/1")
    keys = sorted(store.keys.iterdir())
    gone = prune.prune(site, keep=5)
    assert len(gone.leftovers) == 4
    # the link's own few bytes count, what the half publication linked to does not
    assert gone.size == 1100 + len("publications/1")
    assert (gone.publications, gone.bundles, gone.blobs) == ([], [], [])
    assert not half.exists()
    assert blob.exists()
    assert sorted(store.keys.iterdir()) == keys


@pytest.mark.parametrize("survives", [0, 1, 3, 4, 6, 15])
def test_an_interruption_at_any_point_leaves_a_whole_store_and_the_next_run_goes_on(
    site: Path, survives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [survives]
    rename, unlink = Path.rename, Path.unlink

    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    def renamed(path: Path, target: Path) -> Path:
        step()
        return rename(path, target)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        step()
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(Path, "unlink", unlinked)
    with pytest.raises(KeyboardInterrupt):
        prune.prune(site, keep=2)
    monkeypatch.undo()
    assert whole(site)
    assert publish(site).number == 5
    for number in Store(site).numbers():
        record = json.loads((Store(site).publications / str(number) / "publication.json").read_text())
        assert record["number"] == number
    prune.prune(site, keep=2)
    assert Store(site).numbers() == [4, 5]
    assert hashes(site) == {blob for bundle in Store(site).imported().values() for blob in bundle.sizes()}
    assert not [path for path in site.rglob(".*") if path.name != ".lock"]


def test_nothing_goes_while_it_is_not_known_what_a_kept_publication_needs(site: Path) -> None:
    (Store(site).publications / "4/publication.json").write_text("{")
    before = hashes(site)
    with pytest.raises(IntegrityError, match="does not say what it was made of"):
        prune.prune(site, keep=2)
    assert hashes(site) == before
    assert Store(site).numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_so_many_of_the_newest_bundles_of_each_name_stay_as_are_asked_for(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey, count: int
) -> None:
    for version in ("6.0", "7.0"):
        take(make_bundle(tmp_path / version, key, version=version, body=f"body {version}"), site)
    prune.prune(site, keep=1, versions=count)
    # the one that is served, and the newest
    assert versions(site) == sorted({"5.0"} | set([f"{each}.0" for each in range(1, 8)][-count:]))
    assert whole(site)


def test_the_newest_bundle_stays_in_any_case(site: Path) -> None:
    with pytest.raises(InputError, match="--versions"):
        prune.prune(site, versions=0)
    assert len(versions(site)) == 5


def test_at_least_one_publication_stays(site: Path) -> None:
    with pytest.raises(InputError, match="--keep"):
        prune.prune(site, keep=0)


def test_what_others_keep_beside_the_store_is_none_of_its_leftovers(site: Path) -> None:
    (site / ".snapshots").mkdir()
    assert prune.prune(site, keep=5).nothing
    assert (site / ".snapshots").is_dir()


def test_a_copy_that_an_administrator_made_of_a_publication_is_none(site: Path) -> None:
    (Store(site).publications / "3.kept").mkdir()
    assert prune.prune(site, keep=5).nothing
    assert Store(site).numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("rehearse", [False, True])
def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path, rehearse: bool) -> None:
    (tmp_path / ".profile").touch()
    with pytest.raises(NotFoundError, match="nothing was imported yet"):
        prune.prune(tmp_path, rehearse=rehearse)
    assert [path.name for path in tmp_path.iterdir()] == [".profile"]


def test_a_rehearsal_changes_nothing_and_waits_for_nobody(site: Path) -> None:
    """A store may lie on a disk that is mounted read-only, and an import may take long."""
    before = prune.prune(site, keep=1, rehearse=True)
    with Store(site).changing():
        assert prune.prune(site, keep=1, rehearse=True) == before
    assert before.publications
