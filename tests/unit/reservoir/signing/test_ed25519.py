from __future__ import annotations

import base64
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

import reservoir
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError
from reservoir.signing import ed25519


def load_bootstrap() -> ModuleType:
    path = Path(reservoir.__file__).parent / "installer" / "bootstrap.py"
    spec = importlib.util.spec_from_file_location("bootstrap", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BOOTSTRAP = load_bootstrap()
# RFC 8032, section 7.1, tests 1 to 3: public key, message, signature
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]


@pytest.mark.parametrize(("public", "message", "signature"), VECTORS)
def test_the_installer_checks_signatures_as_the_standard_says(public: str, message: str, signature: str) -> None:
    assert BOOTSTRAP.verify(bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature))


# a machine with much to do may take long for any one of them
@given(seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=200), bit=st.integers(0, 64 * 8 - 1))
def test_the_installer_agrees_with_the_library(seed: bytes, message: bytes, bit: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = key.sign(message)
    flipped = bytearray(signature)
    flipped[bit // 8] ^= 1 << bit % 8
    assert BOOTSTRAP.verify(public, message, signature)
    assert not BOOTSTRAP.verify(public, message, bytes(flipped))
    assert not BOOTSTRAP.verify(public, message + b"x", signature)


def test_the_installer_refuses_a_second_form_of_a_signature(key: Ed25519PrivateKey) -> None:
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = key.sign(b"text")
    s = int.from_bytes(signature[32:], "little") + BOOTSTRAP.L
    assert not BOOTSTRAP.verify(public, b"text", signature[:32] + s.to_bytes(32, "little"))


def test_the_installer_reads_the_keys_that_we_write(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    path = tmp_path / "penstock.pub"
    path.write_bytes(ed25519.public_pem(key))
    assert BOOTSTRAP.public_key(path) == key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    path.write_text("no key")
    with pytest.raises(BOOTSTRAP.RefusedError, match="not an Ed25519 public key"):
        BOOTSTRAP.public_key(path)


def test_a_new_key_is_for_its_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config" / "signing.key"
    made = ed25519.new_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ed25519.public_pem(ed25519.read_key(path)) == ed25519.public_pem(made)
    with pytest.raises(ConflictError, match="there is a key already"):
        ed25519.new_key(path)
    assert [each.name for each in path.parent.iterdir()] == ["signing.key"]


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="penstock reservoir key new"):
        ed25519.read_key(tmp_path / "none")
    (tmp_path / "bad").write_text("bad")
    with pytest.raises(InputError):
        ed25519.read_key(tmp_path / "bad")
    with pytest.raises(InputError):
        ed25519.read_public(b"bad", "bad")
    unknown = base64.b64encode(bytes.fromhex("300d30060604270304050303000102")).decode()
    with pytest.raises(InputError, match="not a public key"):
        ed25519.read_public(f"-----BEGIN PUBLIC KEY-----\n{unknown}\n-----END PUBLIC KEY-----\n".encode(), "unknown")


def test_a_signature_holds_for_one_text_and_one_key(key: Ed25519PrivateKey) -> None:
    line = ed25519.sign(key, b"text")
    ed25519.check(key.public_key(), b"text", line, "x")
    for other, text, signature in [
        (key, b"texts", line),
        (Ed25519PrivateKey.generate(), b"text", line),
        (key, b"text", b"!!!"),
    ]:
        with pytest.raises(IntegrityError, match="does not belong to the key"):
            ed25519.check(other.public_key(), text, signature, "x")
