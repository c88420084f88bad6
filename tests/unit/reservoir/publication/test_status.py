"""What the status of a site says."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, NotFoundError
from reservoir.intake import trust
from reservoir.intake.store import Store
from reservoir.publication import prune, removal
from reservoir.publication.publish import publish, rollback
from reservoir.publication.status import status
from tests.unit.reservoir.parts import make_bundle, take


@pytest.fixture
def site(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    root = tmp_path / "site"
    for version, body in (("1.0", "old"), ("2.0", "new")):
        take(make_bundle(tmp_path / "made", key, version=version, body=body), root)
        publish(root)
    return root


def test_publications_and_bundles_with_age_and_size(site: Path) -> None:
    found = status(site, datetime.now(UTC) + timedelta(days=2))
    assert (found.serving, found.rolled_back) == (2, False)
    first, second = found.publications
    assert (first.number, first.served, second.number, second.served) == (1, False, 2, True)
    assert first.artifacts == {"debian": 1, "file": 1, "image": 1, "image-part": 2, "python": 1}
    assert 172_800 <= second.age_seconds < 172_900
    old, new = found.bundles
    assert (old.version, new.version) == ("1.0", "2.0")
    assert [new.identity] == second.bundles
    assert new.complete
    assert new.size == sum(Store(site).imported()[new.identity].sizes().values())


def test_a_damaged_record_of_the_key_is_told_beside_all_else(site: Path) -> None:
    assert (status(site).trust is None, status(site).trust_damaged) == (False, "")
    (Store(site).keys / trust.RECORD).write_text("{")
    found = status(site)
    assert found.trust is None
    assert "nobody knows which keys were given up" in found.trust_damaged
    assert found.serving == 2


def test_a_file_with_many_names_takes_its_space_once(site: Path) -> None:
    found = status(site)
    blobs = sum(path.stat().st_size for path in Store(site).blobs.iterdir())
    files = [path for path in site.rglob("*") if path.is_symlink() or not path.is_dir()]
    kept = {path.lstat().st_ino: path.lstat().st_size for path in files}
    assert found.used == sum(kept.values())
    assert blobs < found.used < blobs + 100_000
    assert [one.shared for one in found.publications] == [bundle.size for bundle in found.bundles]
    assert 0 < found.publications[0].own < 50_000


def test_it_says_what_prune_would_free(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    assert status(site).prunable == 0
    for version in ("3.0", "4.0"):
        take(make_bundle(tmp_path / "made", key, version=version, body=version), site)
        publish(site)
    foreseen = status(site).prunable
    assert foreseen == prune.prune(site).size > 2_000_000
    assert status(site).prunable == 0


def test_a_site_that_went_back_says_so(site: Path) -> None:
    rollback(site)
    found = status(site)
    assert (found.serving, found.rolled_back) == (1, True)


def test_a_bundle_of_which_a_part_arrived(site: Path, tmp_path: Path, key: Ed25519PrivateKey) -> None:
    arriving = make_bundle(tmp_path / "made", key, name="other")
    record = Store(site).incoming / arriving.name / "record"
    record.mkdir(parents=True)
    (record / "bundle.json").write_bytes((arriving / "bundle.json").read_bytes())
    (record.parent / ("0" * 64)).write_bytes(b"." * 5000)
    size = 5000 + (record / "bundle.json").stat().st_size
    assert [(one.name, one.complete, one.arrived) for one in status(site).bundles] == [
        ("other", False, size),
        ("small", True, 0),
        ("small", True, 0),
    ]
    gone = prune.prune(site)
    assert (gone.arrivals, gone.nothing) == ({arriving.name: size}, True), "it is told, and stays"


def test_what_arrived_of_a_bundle_without_its_list_can_be_pruned(site: Path) -> None:
    half = Store(site).incoming / "other-1.0"
    half.mkdir(parents=True)
    (half / ("0" * 64)).write_bytes(b"." * 5000)
    assert status(site).prunable == 5000
    assert prune.prune(site).leftovers == [half]
    assert not half.exists()


def test_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="penstock reservoir import"):
        status(tmp_path / "none")


def test_long_steps_are_told(site: Path) -> None:
    steps: list[str] = []

    def listen(step: str, done: int = 0, total: int = 0) -> None:
        steps.append(step)

    status(site, progress=listen)
    removal.remove(site, status(site).bundles[0].identity, withdraw=True, rehearse=True, progress=listen)
    prune.prune(site, keep=1, progress=listen)
    assert "measure the store" in steps
    assert [step for step in steps if step.startswith("measure publication")]
    assert [step for step in steps if step.startswith("remove publication")]
    assert "look for what only this bundle needs" in steps


def test_it_looks_again_where_others_change_the_store_meanwhile(site: Path) -> None:
    removed: list[str] = []

    def remove(step: str, done: int = 0, total: int = 0) -> None:
        if step == "measure publication 1":
            removed.append(step)
            shutil.rmtree(Store(site).publications / "1")

    assert [one.number for one in status(site, progress=remove).publications] == [2]
    assert removed == ["measure publication 1"]


def test_a_store_that_changes_at_every_look_is_told(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Store) -> dict[str, object]:
        raise FileNotFoundError(2, "No such file or directory", "bundle.json")

    monkeypatch.setattr(Store, "imported", gone)
    with pytest.raises(ConflictError, match=r"bundle.json went away while the store was read"):
        status(site)
