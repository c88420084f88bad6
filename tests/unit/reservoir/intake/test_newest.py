"""An older bundle stays older when the newer one was removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, IntegrityError
from reservoir.intake.store import Store
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


def test_damaged_marks_are_told(site: Path, bundle: Path) -> None:
    Store(site).marks.write_text('{"newest": {"small": {}}}')
    with pytest.raises(IntegrityError, match="what is remembered of the newest bundles is damaged"):
        take(bundle, site)
