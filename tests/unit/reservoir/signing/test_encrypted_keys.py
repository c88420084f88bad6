"""Signing keys that a stolen file does not give away."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import InputError
from reservoir.signing import ed25519, keychain
from tests.unit.reservoir.test_command_line import call


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_SIGNING_KEY", str(tmp_path / "signing.key"))
    monkeypatch.setenv("PENSTOCK_SIGNING_PASSWORD_FILE", str(tmp_path / "password"))
    (tmp_path / "password").write_text("correct horse\n")
    return tmp_path / "signing.key"


def test_an_encrypted_key_needs_its_password(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "key", "new", "--encrypt") == 0
    assert b"ENCRYPTED PRIVATE KEY" in path.read_bytes()
    name = capsys.readouterr().out.split()[-1]
    assert ed25519.fingerprint(ed25519.read_key(path).public_key()) == name
    path.with_name("password").write_text("wrong")
    assert call(monkeypatch, "key", "show") == 2
    assert "the password does not open the key" in capsys.readouterr().err
    monkeypatch.delenv("PENSTOCK_SIGNING_PASSWORD_FILE")
    with pytest.raises(InputError, match=r"is encrypted.*PENSTOCK_SIGNING_PASSWORD_FILE"):
        ed25519.read_key(path)


def test_a_key_stays_encrypted_when_it_is_rotated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "key", "new", "--encrypt") == 0
    keychain.rotate(path, 0)
    for kept in path.parent.glob("signing*.key"):
        assert b"ENCRYPTED PRIVATE KEY" in kept.read_bytes()
        ed25519.read_key(kept)


def test_an_empty_password_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.with_name("password").write_text("\n")
    assert call(monkeypatch, "key", "new", "--encrypt") == 2
    assert not path.exists()
