from __future__ import annotations

import base64
import hashlib
import random
import struct
from pathlib import Path

import pytest
from pysequoia import SignatureMode, Tsk, sign

from common.errors import IntegrityError
from reservoir.artifacts.rpm import header as tags
from reservoir.artifacts.rpm import signature
from reservoir.contents.artifact import A, Artifact, RpmArtifact, RpmPart
from reservoir.contents.lock import Lock
from reservoir.download.cache import Cache
from reservoir.signing import openpgp

STRING_ARRAY, STRING, BINARY, NUMBER = 8, 6, 7, 4
PAYLOAD = b"what is installed" * 1000


def header(*entries: tuple[int, int, bytes]) -> bytes:
    """Write a header of an RPM package: an index of tags, and their values."""
    index, data = b"", b""
    for tag, kind, value in entries:
        index += struct.pack(">IIII", tag, kind, len(data), len(value) if kind == BINARY else 1)
        data += value
    return tags.MAGIC + bytes(4) + struct.pack(">II", len(entries), len(data)) + index + data


def called(name: str, version: str = "1") -> list[tuple[int, int, bytes]]:
    words = {tags.NAME: name, tags.VERSION: version, tags.RELEASE: "1", tags.ARCH: "noarch"}
    return [(tag, STRING, word.encode() + b"\0") for tag, word in words.items()]


HASHED = (
    (signature.PAYLOAD_ALGORITHM, NUMBER, (8).to_bytes(4)),
    (signature.PAYLOAD_DIGEST, STRING_ARRAY, hashlib.sha256(PAYLOAD).hexdigest().encode() + b"\0"),
)
MAIN = header(*HASHED)


@pytest.fixture(scope="module")
def secret() -> bytes:
    return openpgp.new_key()


def signed(secret: bytes, content: bytes) -> bytes:
    return bytes(sign(Tsk.from_bytes(secret).signer(), content, mode=SignatureMode.DETACHED, armor=False))


def package(path: Path, *signatures: tuple[int, int, bytes], main: bytes = MAIN, payload: bytes = PAYLOAD) -> Path:
    """Write a package: lead, header of signatures up to a multiple of 8, header, payload."""
    first = header(*signatures)
    path.write_bytes(bytes(signature.LEAD) + first + bytes(-len(first) % 8) + main + payload)
    return path


def refusal(path: Path, *secrets: bytes) -> str:
    return signature.refusal(path, [openpgp.certificates(openpgp.public_key(s), "key")[0] for s in secrets])


@pytest.mark.parametrize("tag", [signature.RSA, signature.DSA])
def test_a_package_is_trusted_by_the_signature_of_its_header(secret: bytes, tmp_path: Path, tag: int) -> None:
    path = package(tmp_path / "a.rpm", (tag, BINARY, signed(secret, MAIN)))
    assert refusal(path, secret) == ""


def test_the_list_of_signatures_of_newer_packages_is_read(secret: bytes, tmp_path: Path) -> None:
    text = base64.b64encode(signed(secret, MAIN)) + b"\0"
    path = package(tmp_path / "a.rpm", (signature.OPENPGP, STRING_ARRAY, text))
    assert refusal(path, secret) == ""


def test_without_the_hash_of_its_payload_an_old_package_is_trusted_by_a_signature_of_all_of_it(
    secret: bytes, tmp_path: Path
) -> None:
    main = header((1, NUMBER, bytes(4)))
    of_header = (signature.RSA, BINARY, signed(secret, main))
    of_all = (signature.OLD_RSA, BINARY, signed(secret, main + PAYLOAD))
    path = tmp_path / "a.rpm"
    assert refusal(package(path, of_header, of_all, main=main), secret) == ""
    assert "payload" in refusal(package(path, of_header, main=main), secret)
    assert "payload" in refusal(package(path, of_header, of_all, main=main, payload=b"another"), secret)


def test_a_package_of_version_6_names_no_algorithm_beside_the_hash(secret: bytes, tmp_path: Path) -> None:
    main = header(HASHED[1])
    text = base64.b64encode(signed(secret, main)) + b"\0"
    path, genuine = tmp_path / "a.rpm", (signature.OPENPGP, STRING_ARRAY, text)
    assert refusal(package(path, genuine, main=main), secret) == ""
    assert "payload" in refusal(package(path, genuine, main=main, payload=b"another"), secret)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([(signature.PAYLOAD_ALGORITHM, NUMBER, (77).to_bytes(4)), HASHED[1]], "the algorithm 77"),
        ([HASHED[0], (signature.PAYLOAD_DIGEST, BINARY, b"")], "says nothing"),
    ],
)
def test_a_signed_header_that_makes_no_sense_is_told(
    secret: bytes, tmp_path: Path, entries: list[tuple[int, int, bytes]], said: str
) -> None:
    main = header(*entries)
    path = package(tmp_path / "a.rpm", (signature.RSA, BINARY, signed(secret, main)), main=main)
    assert said in refusal(path, secret)


def test_no_damage_of_a_header_is_anything_else_than_a_refusal(secret: bytes, tmp_path: Path) -> None:
    main, dice = header(*HASHED, *called("tool")), random.Random(18)
    path = package(tmp_path / "a.rpm", (signature.RSA, BINARY, signed(secret, main)), main=main)
    whole = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 6)):
            damaged[dice.randrange(signature.LEAD, len(whole) - len(PAYLOAD))] = dice.randrange(256)
        path.write_bytes(bytes(damaged))
        assert isinstance(refusal(path, secret), str)
        assert isinstance(signature.malformed(path), str)


def test_other_keys_other_headers_and_other_payloads_are_refused(secret: bytes, tmp_path: Path) -> None:
    genuine = (signature.RSA, BINARY, signed(secret, MAIN))
    path = tmp_path / "a.rpm"
    assert "not signed" in refusal(package(path), secret)
    assert "none of the source's keys" in refusal(package(path, genuine), openpgp.new_key())
    assert "none of the source's keys" in refusal(package(path, genuine, main=header((1, NUMBER, bytes(4)))), secret)
    assert "payload" in refusal(package(path, genuine, payload=PAYLOAD + b"more"), secret)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(200),
        bytes(signature.LEAD) + tags.MAGIC + bytes(4) + struct.pack(">II", 1 << 30, 0),
        bytes(signature.LEAD) + header((signature.RSA, BINARY, bytes(50)))[:-10],
    ],
)
def test_what_is_no_package_is_refused(secret: bytes, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.rpm"
    path.write_bytes(content)
    assert "it is no RPM package" in refusal(path, secret)


def locked(secret: bytes, folder: Path, packages: dict[str, bytes], epoch: str = "") -> tuple[Lock, Cache]:
    """Return a lock of these packages, by the name that the metadata gives each, and the cache that holds them."""
    cache = Cache(folder / "cache")
    key = openpgp.public_key(secret).decode()
    artifacts: list[Artifact] = [described(RpmPart, "keys/k", "k.asc", key.encode(), part="key", text=key)]
    for name, content in packages.items():
        cache.keep(content)
        artifacts.append(described(RpmArtifact, name, f"{name}.rpm", content, epoch, keys=["keys/k"], arch="noarch"))
    return Lock(manifest="0" * 64, artifacts=artifacts), cache


def test_every_refused_package_of_a_lock_is_named(secret: bytes, tmp_path: Path) -> None:
    packages = {}
    for name in ("good", "bare", "worse"):
        main = header(*HASHED, *called(name))
        genuine = (signature.RSA, BINARY, signed(secret, main) if name == "good" else b"rubbish")
        packages[name] = package(tmp_path / name, *([] if name == "bare" else [genuine]), main=main).read_bytes()
    with pytest.raises(IntegrityError) as caught:
        signature.check(*locked(secret, tmp_path, packages))
    assert [problem.where for problem in caught.value.problems] == ["bare.rpm", "worse.rpm"]


@pytest.mark.parametrize(
    ("name", "version", "found"), [("tool", "0.9", "tool-0.9-1.noarch"), ("other", "1", "other-1-1.noarch")]
)
def test_a_genuine_package_under_the_name_of_another_is_refused(
    secret: bytes, tmp_path: Path, name: str, version: str, found: str
) -> None:
    main = header(*HASHED, *called(name, version))
    content = package(tmp_path / "a.rpm", (signature.RSA, BINARY, signed(secret, main)), main=main).read_bytes()
    with pytest.raises(IntegrityError, match=rf"tool.rpm: it is {found}, and the metadata calls it tool-1-1.noarch"):
        signature.check(*locked(secret, tmp_path, {"tool": content}))


@pytest.mark.parametrize(("number", "written"), [(0, ""), (3, "3:")])
def test_an_epoch_belongs_to_what_a_package_is(secret: bytes, tmp_path: Path, number: int, written: str) -> None:
    main = header(*HASHED, *called("tool"), (tags.EPOCH, NUMBER, number.to_bytes(4)))
    content = package(tmp_path / "a.rpm", (signature.RSA, BINARY, signed(secret, main)), main=main).read_bytes()
    signature.check(*locked(secret, tmp_path, {"tool": content}, written))


def described(kind: type[A], name: str, filename: str, content: bytes, epoch: str = "", **metadata: object) -> A:
    return kind.model_validate(
        {
            "name": name,
            "version": f"{epoch}1-1",
            "filename": filename,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "origin": "made for a test",
            "targets": ["el9"],
            "metadata": metadata,
        }
    )
