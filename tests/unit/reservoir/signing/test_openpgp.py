from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers as Private
from pysequoia import Cert, Sig, Tsk, verify

from common.errors import InputError, IntegrityError
from reservoir.signing import openpgp, openpgp_key


@pytest.fixture(scope="module")
def secret() -> bytes:
    return openpgp.new_key()


def test_a_new_key_names_itself_and_never_expires(secret: bytes) -> None:
    cert = Cert.from_bytes(openpgp.public_key(secret))
    assert [str(user) for user in cert.user_ids] == [openpgp.USER_ID]
    assert cert.expiration is None
    assert b"PUBLIC KEY BLOCK" in openpgp.public_key(secret)


def test_a_signature_beside_covers_the_content_and_names_the_key(secret: bytes) -> None:
    keys = openpgp.certificates(openpgp.public_key(secret), "key")
    strangers = openpgp.certificates(openpgp.public_key(openpgp.new_key()), "key")
    signature = openpgp.sign_beside(secret, b"content")
    assert openpgp.signed_beside(keys, b"content", signature)
    assert openpgp.signed_beside([*strangers, *keys], b"content", signature)
    assert not openpgp.signed_beside(keys, b"other content", signature)
    assert not openpgp.signed_beside(strangers, b"content", signature)
    assert not openpgp.signed_beside(keys, b"content", b"rubbish")


def test_all_keys_of_a_file_are_read(secret: bytes) -> None:
    both = openpgp.public_key(secret) + openpgp.public_key(openpgp.new_key())
    assert len({key.fingerprint for key in openpgp.certificates(both, "keys")}) == 2
    assert openpgp.certificates(openpgp.binary_key(secret), "key")
    with pytest.raises(InputError, match=r"vendor.asc: there are no OpenPGP keys"):
        openpgp.certificates(b"rubbish", "vendor.asc")


def test_a_signature_around_a_text_covers_it_as_it_stands(secret: bytes) -> None:
    text = b"Origin: Penstock\n- dashes \nDate: x\n"
    signed = openpgp.sign_inside(secret, text)
    keys = openpgp.certificates(openpgp.public_key(secret), "key")
    found = verify(bytes=signed, store=lambda _: list(keys))
    assert found.bytes == text.rstrip(b"\n").replace(b"dashes ", b"dashes")
    with pytest.raises(RuntimeError):
        verify(bytes=signed.replace(b"Origin", b"origin"), store=lambda _: list(keys))


def test_nothing_depends_on_the_clock_of_who_signs_or_reads(secret: bytes) -> None:
    """A node whose clock is behind must not find key or signature in its future."""
    assert openpgp.sign_inside(secret, b"text\n") == openpgp.sign_inside(secret, b"text\n")
    signature = Sig.from_bytes(openpgp.sign_beside(secret, b"content"))
    assert signature.created is not None
    assert signature.created.year == 2000
    assert signature.expiration is None


def test_a_key_of_another_form_is_refused() -> None:
    for secret in (bytes(Tsk.generate(user_id="x", validity_seconds=None)), b"rubbish", b""):
        with pytest.raises(IntegrityError, match=r"keys/apt.key: .* not a key of this form. Hint: move it away"):
            openpgp.sign_beside(secret, b"content")


def test_a_key_is_read_and_checked_once_for_all_its_signatures(secret: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def watched(*numbers: Any) -> Private:
        read.append(numbers)
        return Private(*numbers)

    monkeypatch.setattr(openpgp_key, "Private", watched)
    other = openpgp.new_key()
    for key in (other, other, secret, secret):
        openpgp.sign_beside(key, b"content")
    assert len(read) == 2
