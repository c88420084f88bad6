"""Fixtures of the reservoir's unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.unit.reservoir import quick_keys as quick_keys_of_tests
from tests.unit.reservoir.parts import make_bundle, take


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def bundle(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    return make_bundle(tmp_path / "made", key)


@pytest.fixture
def site(tmp_path: Path, bundle: Path) -> Path:
    """A site that holds one bundle already."""
    root = tmp_path / "site"
    take(bundle, root)
    return root


@pytest.fixture(autouse=True, scope="session")
def quick_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        quick_keys_of_tests.use(patch)
        yield
