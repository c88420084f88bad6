"""A site that publishes `demo`, for each test as new."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.publication.publish import publish
from tests.unit.reservoir.parts import make_bundle, take


@pytest.fixture(scope="session")
def _published(quick_keys: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    take(make_bundle(folder / "made", Ed25519PrivateKey.generate()), folder / "site")
    publish(folder / "site")
    return folder / "site"


@pytest.fixture
def root(_published: Path, tmp_path: Path) -> Path:
    """The folder of the site."""
    return shutil.copytree(_published, tmp_path / "site", symlinks=True)
