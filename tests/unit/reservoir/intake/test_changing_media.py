"""Media that show something else when they are read again, or more than their lists say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import IntegrityError, Problem
from reservoir.bundle import bundles, verification
from reservoir.bundle.verification import Verified
from reservoir.intake import copies
from reservoir.intake.store import Store
from reservoir.media import split
from reservoir.signing import keychain
from tests.unit.reservoir.parts import make_bundle, take


def test_a_document_that_changes_while_it_is_read_is_refused(
    site: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = verification.damaged

    def meddle(found: Verified) -> dict[str, Problem]:
        seen = damaged(found)
        (second / "sbom.cdx.json").write_bytes(b"[]")
        return seen

    monkeypatch.setattr(verification, "damaged", meddle)
    with pytest.raises(IntegrityError, match="was changed while it was read"):
        take(second, site)
    assert [bundle.version for bundle in Store(site).imported().values()] == ["1.0"]


def test_a_medium_that_shows_something_else_at_a_second_read_is_not_asked_twice(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signature and chain of keys are kept as they were checked."""
    root, successor = tmp_path / "new-site", Ed25519PrivateKey.generate()
    rotation = keychain.statement(key, successor.public_key(), 1, 0)
    rotated = make_bundle(tmp_path, successor, version="2.0", chain=keychain.Keychain(rotations=[rotation]))
    assert take(bundle, root).changed
    signature = (rotated / bundles.SIGNATURE).read_bytes()
    read_signed = bundles.read_signed

    def then_changed(folder: Path, *known: Any) -> bundles.Signed:
        found = read_signed(folder, *known)
        (folder / bundles.SIGNATURE).write_bytes(b"something else")
        (folder / bundles.KEYS).unlink()
        return found

    monkeypatch.setattr(bundles, "read_signed", then_changed)
    identity = take(rotated, root).identity
    store = Store(root)
    assert (store.bundles / identity / bundles.SIGNATURE).read_bytes() == signature
    assert keychain.read(store.keychain).rotations == [rotation], "the key that was replaced is remembered"


def test_an_attachment_that_changes_on_every_medium_while_it_is_read_is_refused(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "other-site"
    media = split.split(bundle, 2_300_000, key, tmp_path)
    damaged = verification.damaged

    def meddle(found: Verified) -> dict[str, Problem]:
        seen = damaged(found)
        (found.folder / "sbom.cdx.json").unlink()
        (found.folder / "sbom.cdx.json").write_bytes(b"[]")
        return seen

    monkeypatch.setattr(verification, "damaged", meddle)
    for folder in media:
        with pytest.raises(IntegrityError, match=r"sbom.cdx.json: .*was changed while it was read"):
            take(folder, root)
    assert Store(root).imported() == {}


def _longer(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, 64 << 20)


def _linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def _piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [(_longer, "is longer than its list says"), (_linked, "is no ordinary file"), (_piped, "is no ordinary file")],
)
def test_a_medium_that_shows_other_files_when_they_are_read_fills_no_disk(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, turn: Callable[[Path], None], reason: str
) -> None:
    root, most = tmp_path / "new-site", 0
    blob = max((bundle / bundles.BLOBS).iterdir(), key=lambda path: path.stat().st_size)
    size, look, file_write = blob.stat().st_size, verification.damaged, copies.gone_when_it_fails

    def then_turned(found: verification.Verified) -> Any:
        said = look(found)
        turn(blob)
        return said

    @contextmanager
    def watched(beside: Path) -> Iterator[None]:
        nonlocal most
        with file_write(beside):
            try:
                yield
            finally:
                most = max(most, beside.stat().st_size)

    monkeypatch.setattr(verification, "damaged", then_turned)
    monkeypatch.setattr(copies, "gone_when_it_fails", watched)
    with pytest.raises(IntegrityError, match=reason):
        take(bundle, root)
    assert most <= size
    assert not list(root.rglob("*.partial"))


def test_a_check_reads_no_more_than_the_list_says(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = max((bundle / bundles.BLOBS).iterdir(), key=lambda path: path.stat().st_size)
    look = verification.damaged

    def then_turned(found: verification.Verified) -> Any:
        said = look(found)
        _longer(blob)
        return said

    monkeypatch.setattr(verification, "damaged", then_turned)
    with pytest.raises(IntegrityError, match="is longer than its list says"):
        verification.verify(bundle)
