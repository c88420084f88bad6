"""Sealing of files to a public key by age; the only module that knows its library.

What is sealed is a tar archive. It is opened as a whole before anything of it is used: age says only at the end whether
nothing was altered or cut off.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import pyrage

from common import files
from common.errors import ConflictError, InputError, IntegrityError, PenstockError, UnavailableError

Member = tuple[Path, str]
"""A file, and its name in the archive."""
NO_KEY = "No matching keys found"
"""What the library says of a file that was sealed to another key; it has no class for that."""
ROOM = "make room on the disk, and look whether `backup.recipient` is a key that `penstock backup key` made"


def new_identity(path: Path) -> str:
    """Write a new private key that only its owner reads, and return its public key."""
    if path.exists():
        raise ConflictError("the file exists", where=str(path), hint="name another file; a lost key opens nothing more")
    identity = pyrage.x25519.Identity.generate()
    recipient = str(identity.to_public())
    files.write(path, f"# public key: {recipient}\n{identity}\n", 0o600)
    return recipient


def seal(members: Iterable[Member], recipient: str, target: Path) -> None:
    """Write an archive of files that only the owner of a key can open. It is nowhere else in plain."""
    reading, writing = os.pipe()
    failed: list[BaseException] = []

    def pack() -> None:
        try:
            with os.fdopen(writing, "wb") as pipe, tarfile.open(fileobj=pipe, mode="w|gz") as archive:
                for path, name in members:
                    archive.add(path, name, recursive=False)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=pack)
    with os.fdopen(reading, "rb") as pipe, target.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        thread.start()
        try:
            pyrage.encrypt_io(pipe, file, [pyrage.x25519.Recipient.from_str(recipient)])
        except (pyrage.EncryptError, pyrage.RecipientError) as error:
            raise UnavailableError(f"it cannot be sealed: {error}", where=str(target), hint=ROOM) from error
        finally:
            pipe.close()
            thread.join()
    if failed:
        target.unlink()
        raise failed[0]


class _Read:
    """A file that is read once, with the hash of what was read: others may give another content the next time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._hash.update(piece)
        return piece

    def require(self, sha256: str) -> None:
        while self.read(1 << 20):
            pass
        if self._hash.hexdigest() != sha256:
            raise tarfile.ReadError("it was altered while it was read")


@contextmanager
def opened(source: Path, identity: Path, scratch: Path, sha256: str) -> Iterator[tarfile.TarFile]:
    """Give the archive of a sealed file whose hash is known; `scratch` is a folder of this machine for what is in it.

    Raises InputError where the key is another one, UnavailableError where a disk fails, IntegrityError where it was
    altered.
    """
    key = _identity(identity)
    # it has no name, and goes with this process
    with TemporaryFile(dir=scratch) as plain:
        try:
            with source.open("rb") as file:
                sealed = _Read(file)
                pyrage.decrypt_io(sealed, plain, [key])
                sealed.require(sha256)
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:gz") as archive:
                yield archive
        except (pyrage.DecryptError, tarfile.TarError, EOFError, zlib.error, OSError) as error:
            raise _refusal(error, source, identity) from error


def _refusal(error: Exception, source: Path, identity: Path) -> PenstockError:
    if str(error) == NO_KEY:
        reason = f"{identity} is not the key that {source.name} was sealed to"
        return InputError(reason, where="--identity", hint="give the private key of `backup.recipient` at that time")
    # those that age and gzip raise of what they read have no number
    if isinstance(error, OSError) and error.errno:
        return UnavailableError(
            f"it cannot be opened now: {error.strerror}", where=str(source), hint="look at the disk, then try again"
        )
    return IntegrityError(f"it cannot be opened: {error}", where=str(source), hint="use another backup")


def _identity(path: Path) -> pyrage.x25519.Identity:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return pyrage.x25519.Identity.from_str(next(line for line in lines if line.startswith("AGE-SECRET-KEY-")))
    except (OSError, UnicodeDecodeError, StopIteration, pyrage.IdentityError) as error:
        raise InputError(
            "there is no private key in it", where=str(path), hint="give the file that `penstock backup key` made"
        ) from error
