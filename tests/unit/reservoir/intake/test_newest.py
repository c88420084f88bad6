"""An older bundle stays older when the newer one was removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, IntegrityError
from reservoir.intake import newest
from reservoir.intake.store import Store
from reservoir.publication.prune import prune
from reservoir.publication.publish import publish
from reservoir.publication.removal import remove
from tests.unit.reservoir.parts import make_bundle, take


@pytest.fixture
def site(tmp_path: Path, bundle: Path, key: Ed25519PrivateKey) -> Path:
    """A site that took version 2.0 of a bundle and removed it."""
    root = tmp_path / "site"
    take(make_bundle(tmp_path / "made", key, name="other", body="other"), root)
    take(make_bundle(tmp_path / "made", key, version="2.0", body="newer"), root)
    remove(root, "small")
    return root


def test_what_was_removed_still_says_what_is_older(site: Path, bundle: Path) -> None:
    with pytest.raises(
        ConflictError,
        match=r"this site took small 2.0 of .*, which is newer than 1.0.*`penstock reservoir import --allow-rollback`",
    ):
        take(bundle, site)
    assert take(bundle, site, allow_rollback=True).changed
    remove(site, "small")
    with pytest.raises(ConflictError, match=r"newer than 1.0"):
        take(bundle, site)


@pytest.mark.parametrize("allow_rollback", [True, False])
def test_damaged_marks_are_told_before_anything_is_taken(site: Path, bundle: Path, *, allow_rollback: bool) -> None:
    Store(site).marks.write_text('{"newest": {"small": {}}}')
    before = Store(site).imported().keys()
    with pytest.raises(IntegrityError, match="what is remembered of the newest bundles is damaged"):
        take(bundle, site, allow_rollback=allow_rollback)
    assert Store(site).imported().keys() == before


@pytest.mark.parametrize("way", ["removed", "withdrawn", "pruned"])
def test_what_leaves_is_remembered_though_its_import_was_cut_off(
    site: Path, bundle: Path, tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    take(bundle, site, allow_rollback=True)
    third = make_bundle(tmp_path / "made", key, version="3.0", body="newest")
    monkeypatch.setattr(newest, "remember", killed)
    with pytest.raises(KeyboardInterrupt):
        take(third, site)
    monkeypatch.undo()
    (identity,) = [name for name, held in Store(site).imported().items() if held.version == "3.0"]
    Store(site).marks.unlink()
    if way == "pruned":
        Store(site).withdraw([identity])
        assert prune(site).bundles == [identity]
    else:
        publish(site)
        remove(site, identity, withdraw=way == "withdrawn")
        prune(site, keep=1)
    with pytest.raises(ConflictError, match=r"this site took small 3\.0 of .*, which is newer than 2\.0"):
        take(make_bundle(tmp_path / "again", key, version="2.0"), site)
