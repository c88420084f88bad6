"""Sites and bundles for what comes to a site."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.unit.reservoir.parts import make_bundle


@pytest.fixture
def second(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    return make_bundle(tmp_path / "made", key, version="2.0", body="second")
