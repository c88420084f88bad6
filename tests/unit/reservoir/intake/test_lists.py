from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from reservoir.intake import receipt
from reservoir.publication.prune import prune
from reservoir.publication.removal import remove
from reservoir.publication.status import status
from tests.unit.reservoir.parts import publish_versions

ASKED: dict[str, Callable[[Path], object]] = {
    "status": status,
    "prune": lambda root: prune(root, rehearse=True),
    "remove": lambda root: remove(root, "small", withdraw=True, rehearse=True),
    "receipt": lambda root: receipt.write(root, 1_767_323_045),
}


@pytest.mark.parametrize("verb", ASKED)
def test_no_list_is_decoded_twice(
    verb: str, tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of many artifacts takes a second, so an answer about a store takes it once."""
    site = publish_versions(tmp_path / "site", key, 2)
    decode = bundles.decode
    decoded: list[str] = []

    def noted(content: bytes, where: str) -> Bundle:
        decoded.append(where)
        return decode(content, where)

    monkeypatch.setattr(bundles, "decode", noted)
    with suppress(ConflictError):
        ASKED[verb](site)
    assert len(decoded) == len(set(decoded)) == 2
