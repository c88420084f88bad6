"""Verification of a bundle: signature, every hash, nothing missing, nothing extra; in constant memory."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from common.errors import IntegrityError, Problem
from common.progress import Progress, counter, silent
from reservoir.artifacts import kinds
from reservoir.bundle import bundles, medium
from reservoir.bundle.bundles import BLOBS, HINT, KEYS, LIST, PUBLIC_KEY, SIGNATURE
from reservoir.bundle.medium import DESCRIPTION, DESCRIPTION_SIGNATURE, Medium
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import CHUNK
from reservoir.download.threads import in_threads
from reservoir.signing import ed25519, keychain

BESIDE_BLOBS = {LIST, SIGNATURE, PUBLIC_KEY, KEYS, BLOBS.parts[0]}


@dataclass(frozen=True)
class Verified:
    """A bundle whose signature holds; `content` and `signature` are the exact bytes that were checked.

    `pinned` says that the caller knew the key, `chain` is how it came to be the maker's, `medium` is set where the
    folder carries a part of the bundle only.
    """

    folder: Path
    bundle: Bundle
    content: bytes
    signature: bytes
    key: Ed25519PublicKey
    pinned: bool
    chain: keychain.Keychain
    medium: Medium | None

    @property
    def identity(self) -> str:
        """Return the name of this very bundle."""
        return bundles.identity(self.bundle, self.content)

    @property
    def of_set(self) -> bool:
        """Say whether this is one of several media."""
        return self.medium is not None and self.medium.count > 1

    def files(self) -> dict[str, int]:
        """Return the size in bytes of each file that belongs into this folder's `blobs/sha256`, by its hash."""
        sizes = self.bundle.sizes()
        if self.medium is None:
            return sizes
        sizes |= self.medium.piece_sizes()
        return {name: sizes[name] for name in self.medium.files[self.medium.number - 1]}

    def blob(self, sha256: str) -> Path | None:
        """Return where a blob lies in this folder, nothing where the folder does not carry it whole."""
        path = self.folder / BLOBS / sha256
        return path if path.is_file() else None

    def labels(self) -> dict[str, str]:
        """Return what people call each file, by its hash."""
        labels = {artifact.sha256: artifact.filename for artifact in self.bundle.artifacts}
        for blob, cut in self.medium.cut.items() if self.medium else ():
            for index, piece in enumerate(cut, 1):
                labels.setdefault(piece.sha256, f"piece {index} of {len(cut)} of {labels[blob]}")
        return labels

    def problem(self, path: Path, reason: str) -> Problem:
        """Return a problem with a file of this folder; on one of several media it names the medium."""
        if self.medium is None or not self.of_set:
            return Problem(str(path), reason, HINT)
        hint = f"get {self.medium.title} again; what is good of it and of the others is kept"
        return Problem(str(path), f"{self.medium.title}: {reason}", hint)


def verify(folder: Path, key: Ed25519PublicKey | None = None, progress: Progress = silent) -> Verified:
    """Check everything in a bundle, or on a medium; raises one IntegrityError that lists all that is wrong.

    What is whole is also what can be published, as far as that hangs on the bundle.

    Without `key` the key that travels with the bundle is taken: then the bundle is whole, but anyone may have made it.
    """
    found = read(folder, key)
    if problems := [*foreign(found), *damaged(found).values()]:
        raise IntegrityError.of(problems)
    sizes = found.files()
    if problems := check_blobs(found, sizes, lambda name, path: carried_digest(path, sizes[name]), progress):
        raise IntegrityError.of(problems)
    progress("check that it can be published")
    if problems := kinds.check_new([found.bundle], found.blob):
        raise IntegrityError.of(problems)
    return found


def read(
    folder: Path,
    key: Ed25519PublicKey | None = None,
    replaced: Mapping[str, str] = MappingProxyType({}),
    decoded: Callable[[bytes, str], Bundle] | None = None,
) -> Verified:
    """Check the signature of a bundle and read its list, but not yet which files it has.

    `replaced` are keys that count no more, and `decoded` knows lists, as for `bundles.read_signed`.
    """
    signed = bundles.read_signed(folder, key, replaced, decoded)
    carried = medium.read(folder, signed.bundle, signed.content, signed.key)
    return Verified(
        folder, signed.bundle, signed.content, signed.signature, signed.key, key is not None, signed.chain, carried
    )


def missing_media(media_of_set: Sequence[Verified]) -> list[int]:
    """Return the numbers of the media that are not among these of one set."""
    described = [found.medium for found in media_of_set if found.medium]
    numbers = {each.number for each in described if each.set_name() == described[0].set_name()}
    return sorted(set(range(1, described[0].count + 1)) - numbers) if described else []


def foreign(found: Verified) -> list[Problem]:
    """Return a problem for every file of a folder that is not in the bundle's list."""
    folder = found.folder
    beside = BESIDE_BLOBS | found.bundle.installer.keys() | found.bundle.attachments.keys()
    if found.medium:
        beside |= {DESCRIPTION, DESCRIPTION_SIGNATURE}
    wanted = found.files()
    extra = [path for path in folder.iterdir() if path.name not in beside and not bundles.of_the_disc(path)]
    extra += [path for path in (folder / BLOBS.parts[0]).glob("*") if path.name != BLOBS.parts[1]]
    extra += [path for path in (folder / BLOBS).glob("*") if path.name not in wanted]
    problems = [Problem(str(path), "is not in the bundle's list", HINT) for path in sorted(extra)]
    links = [path for path in (folder / BLOBS.parent, folder / BLOBS) if path.is_symlink()]
    return problems + [Problem(str(path), "is a link", HINT) for path in links]


def damaged(found: Verified) -> dict[str, Problem]:
    """Return a problem for every file that is missing, no file, of another length, or not the signed one beside.

    They are keyed by name; what is in the blobs is not looked at.
    """
    labels = found.labels()
    problems = {}
    for sha256, size in sorted(found.files().items()):
        path = found.folder / BLOBS / sha256
        try:
            there = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            reason = "is missing"
        else:
            reason = f"has {there.st_size} bytes, not {size}" if there.st_size != size else ""
            reason = reason if stat.S_ISREG(there.st_mode) else "is not a file"
        if reason:
            problems[sha256] = found.problem(path, f"{labels[sha256]} {reason}")
    for name, sha256 in (found.bundle.installer | found.bundle.attachments).items():
        path = found.folder / name
        if not path.is_file() or path.is_symlink():
            problems[name] = found.problem(path, "is missing")
        elif reason := _difference(sha256, path, carried_digest):
            problems[name] = found.problem(path, reason)
    return problems


def check_blobs(
    found: Verified,
    files: dict[str, int],
    digest_of: Callable[[str, Path], str],
    progress: Progress,
    step: str = "verify",
) -> list[Problem]:
    """Return a problem for each of the files, sizes by hash, that is not what the list says.

    `digest_of` gets the hash and the path of one, reads it and returns its hash.
    """
    labels = found.labels()
    note = counter(step, sum(files.values()), progress)

    def check(sha256: str) -> Problem | None:
        path = found.folder / BLOBS / sha256
        reason = _difference(sha256, path, partial(digest_of, sha256))
        note(files[sha256])
        return found.problem(path, f"{labels[sha256]} {reason}") if reason else None

    # the biggest first, so that no thread is left with one of them at the end
    return [problem for problem in in_threads(check, sorted(files, key=lambda name: -files[name])) if problem]


def carried_digest(path: Path, size: int = ed25519.LONGEST) -> str:
    """Return the sha256 of a file on a carried medium; raises what `carried_pieces` raises."""
    said = hashlib.sha256()
    for piece in carried_pieces(path, size):
        said.update(piece)
    return said.hexdigest()


def carried_pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file on a carried medium in pieces.

    Raises IntegrityError where the medium does not give it, or gives more than its `size`: a medium may show one file
    when it is looked at, and another one when it is read.
    """
    with _readable(path), ed25519.opened(path) as file:
        while piece := file.read(min(CHUNK, size + 1)):
            size -= len(piece)
            if size < 0:
                raise IntegrityError("is longer than its list says", where=str(path), hint=HINT)
            yield piece


def fingerprint(found: Verified) -> str:
    """Return the fingerprint of the key that a bundle is signed with."""
    return ed25519.fingerprint(found.key)


def _difference(sha256: str, path: Path, digest_of: Callable[[Path], str]) -> str:
    """Return why a file is not the one with that hash, or nothing where it is."""
    try:
        said = digest_of(path)
    except IntegrityError as error:
        return error.problems[0].reason
    return "" if said == sha256 else f"was changed: its sha256 is {said}"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn a failure to read from a medium into one that says which file it was."""
    try:
        yield
    except OSError as error:
        raise IntegrityError(f"cannot be read: {error.strerror}", where=str(path), hint=HINT) from error
