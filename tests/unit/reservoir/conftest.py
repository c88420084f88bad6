"""Fixtures of the reservoir's unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.unit.reservoir.parts import make_bundle


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def bundle(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    return make_bundle(tmp_path / "made", key)
