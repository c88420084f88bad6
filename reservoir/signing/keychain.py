"""The chain of an integrator's keys: each statement names a new key and is signed by the key that it replaces."""

from __future__ import annotations

import base64
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field, StringConstraints, ValidationError

from common import files
from common.errors import ConflictError, IntegrityError
from common.strict import StrictModel
from reservoir.signing import ed25519

HINT = "do not use this bundle; ask its maker which key is theirs and give it with --key"
# bytes, and changes of one maker's key: the file is read before it is known whose it is; the installer has the same
LONGEST = 1 << 20
ROTATIONS = 64
# the 32 bytes of an Ed25519 key in hex
RawKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Rotation(StrictModel):
    """One change of the key: `new` replaces `old`, which signed this. `date` is a day, year first."""

    number: Annotated[int, Field(ge=1)]
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    old: RawKey
    new: RawKey
    signature: str

    def message(self) -> bytes:
        """Return the bytes that the old key signs; the installer builds the same ones."""
        return f"penstock key rotation\n{self.number}\n{self.date}\n{self.old}\n{self.new}\n".encode()


class Keychain(StrictModel):
    """Changes of one integrator's key, the first one first: the content of `keys.json`.

    What travels tells all of them; who trusts a key keeps those from that key on.
    """

    document: Literal["penstock keys"] = "penstock keys"
    rotations: list[Rotation]

    def leads(self, known: Ed25519PublicKey, to: Ed25519PublicKey) -> bool:
        """Say whether who trusts the key `known` may trust `to`: it is the same, or what replaced it in the end."""
        if self.rotations and self.rotations[-1].new != raw(to):
            return False
        return raw(known) == raw(to) or raw(known) in self.replaced()

    def forgets(self, known: Keychain) -> bool:
        """Say whether this chain goes through the newest key of another one and leaves out how that came to be.

        Anyone can sign that a key replaced theirs, so only what was known before tells which keys it really replaced.
        """
        steps, before = ([(each.number, each.old, each.new) for each in chain.rotations] for chain in (self, known))
        if not before or not any(before[-1][2] in step for step in steps):
            return False
        first = before[0][0] - 1
        return steps[first : first + len(before)] != before

    def after(self, key: str) -> list[Rotation]:
        """Return the changes that began with a key."""
        first = next((index for index, each in enumerate(self.rotations) if each.old == key), len(self.rotations))
        return self.rotations[first:]

    def grown(self, trusted: Ed25519PublicKey, carried: Keychain) -> Keychain:
        """Return this chain with what a carried one adds to it, for who trusts the key `trusted`.

        Anyone can sign that a key replaced theirs, so what is said of keys before the trusted one is left out.
        """
        end = self.rotations[-1].new if self.rotations else None
        if end and end in (raw(trusted), *(each.new for each in carried.rotations)):
            return Keychain(rotations=[*self.rotations, *carried.after(end)])
        return Keychain(rotations=carried.after(raw(trusted)))

    def replaced(self) -> dict[str, str]:
        """Return the keys that count no more, with the day on which each was replaced."""
        return {rotation.old: rotation.date for rotation in self.rotations}


def encode(chain: Keychain) -> bytes:
    """Return the bytes of a chain's file."""
    return chain.model_dump_json(indent=1).encode() + b"\n"


def decode(content: bytes, where: str, *, whole: bool = True) -> Keychain:
    """Return the chain in `content`; raises IntegrityError where any link of it does not hold.

    One that is not `whole` may begin with a later key.
    """
    try:
        chain = Keychain.model_validate_json(content)
    except ValidationError as error:
        raise IntegrityError("not a chain of keys", where=where, hint=HINT) from error
    if len(chain.rotations) > ROTATIONS:
        raise IntegrityError(f"names more than {ROTATIONS} keys", where=where, hint=HINT)
    seen: set[str] = set()
    first = 1 if whole or not chain.rotations else chain.rotations[0].number
    for index, rotation in enumerate(chain.rotations):
        place = f"{where}: rotations[{index}]"
        seen.add(rotation.old)
        follows = index == 0 or chain.rotations[index - 1].new == rotation.old
        if rotation.number != first + index or not follows or rotation.new in seen:
            raise IntegrityError("the chain of keys is broken", where=place, hint=HINT)
        old = Ed25519PublicKey.from_public_bytes(bytes.fromhex(rotation.old))
        ed25519.check(old, rotation.message(), rotation.signature.encode(), place, HINT)
    return chain


def read(path: Path) -> Keychain:
    """Return the chain in a file of this machine, or an empty one where there is no file."""
    return decode(path.read_bytes(), str(path), whole=False) if path.exists() else Keychain(rotations=[])


def carried(path: Path) -> Keychain:
    """Return the chain in a file on a carried medium, or an empty one where there is no file."""
    try:
        return decode(ed25519.carried(path, LONGEST), str(path))
    except FileNotFoundError:
        return Keychain(rotations=[])


def beside(signing_key: Path) -> Path:
    """Return the file that holds the chain which ends with the key at `signing_key`."""
    return signing_key.with_name(f"{signing_key.stem}.keys.json")


def of_key(signing_key: Path, key: ed25519.SigningKey) -> Keychain:
    """Return the chain that travels with bundles of a key; raises ConflictError in the middle of a rotation."""
    chain = read(beside(signing_key))
    if chain.rotations and chain.rotations[-1].new != raw(key.public_key()):
        raise ConflictError(
            "the rotation of the key was interrupted",
            where=str(signing_key),
            hint="run `penstock reservoir key rotate` again",
        )
    return chain


def rotate(signing_key: Path, timestamp: int, uri: str | None = None) -> Rotation:
    """Make a new key, have the old one sign it, keep the old one beside; return the statement.

    With `uri` the new one lies in the token that it names. An interrupted rotation goes on with the key that it made.
    `timestamp` counts seconds since 1970. Raises ConflictError where a key would leave tokens unasked, or where nobody
    would take the chain any more.
    """
    with _alone(signing_key):
        old, password = ed25519.open_key(signing_key)
        chain = read(beside(signing_key))
        if len(chain.rotations) >= ROTATIONS and chain.rotations[-1].new == raw(old.public_key()):
            raise ConflictError(
                f"the key was replaced {ROTATIONS} times, and no site takes a longer chain",
                where=str(beside(signing_key)),
                hint="start from scratch: move both files away, make a key with `penstock reservoir key new`, and let "
                "sites trust it with --key and --replace-key",
            )
        waiting = signing_key.with_name(f".{signing_key.name}.next")
        # an interrupted write of a key is a secret that nobody would look for
        for begins in (waiting.name, f"{signing_key.stem}."):
            files.sweep(signing_key.parent, begins)
        new = ed25519.read_key(waiting) if waiting.exists() else _successor(signing_key, waiting, password, uri)
        if raw(new.public_key()) == raw(old.public_key()):
            waiting.unlink()
            raise ConflictError("this is the key that is to be replaced", where=str(uri), hint="name another object")
        if not chain.rotations or chain.rotations[-1].new != raw(new.public_key()):
            rotation = statement(old, new.public_key(), len(chain.rotations) + 1, timestamp)
            # with its fingerprint: after a start from scratch the numbers begin anew
            name = f"{signing_key.stem}.{rotation.number}.{fingerprint(rotation.old)[:8]}.key"
            archive = signing_key.with_name(name)
            files.write(archive, signing_key.read_bytes(), 0o600)
            chain = Keychain(rotations=[*chain.rotations, rotation])
            files.write(beside(signing_key), encode(chain))
        waiting.replace(signing_key)
        return chain.rotations[-1]


def _successor(signing_key: Path, waiting: Path, password: bytes | None, uri: str | None) -> ed25519.SigningKey:
    """Make the key that is to replace the one at `signing_key`, at `waiting`."""
    if uri:
        return ed25519.new_token_key(waiting, uri)
    if ed25519.in_token(signing_key.read_bytes()):
        raise ConflictError(
            "the key lies in a token, and the new one would lie in a file",
            where=str(signing_key),
            hint="say with --pkcs11 URI where the new one is to lie",
        )
    return ed25519.new_key(waiting, password)


def raw(key: Ed25519PublicKey) -> str:
    """Return the 32 bytes of a public key in hex."""
    return key.public_bytes_raw().hex()


def fingerprint(key: str) -> str:
    """Return the name by which people compare keys; `key` is the hex of a public key."""
    return sha256(bytes.fromhex(key)).hexdigest()


def statement(old: ed25519.SigningKey, new: Ed25519PublicKey, number: int, timestamp: int) -> Rotation:
    """Return the statement, signed by the old key, that a new one replaces it; `number` counts them from 1."""
    date = f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d}"
    unsigned = Rotation(number=number, date=date, old=raw(old.public_key()), new=raw(new), signature="")
    signature = base64.b64encode(old.sign(unsigned.message())).decode()
    return unsigned.model_copy(update={"signature": signature})


@contextmanager
def _alone(signing_key: Path) -> Iterator[None]:
    """Wait until no other process changes the key."""
    signing_key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(signing_key.with_name(f".{signing_key.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
