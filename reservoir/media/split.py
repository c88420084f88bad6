"""Media that a bundle is cut into: each fits on a disc and describes itself."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import InputError
from common.progress import Progress, silent
from reservoir.bundle import bundles
from reservoir.bundle.bundles import BLOBS
from reservoir.bundle.medium import Medium, Piece
from reservoir.bundle.verification import Verified, verify
from reservoir.download.cache import CHUNK, space_on
from reservoir.media import carry, needed
from reservoir.signing.ed25519 import SigningKey

DISCS = {"cd": 700_000_000, "dvd": 4_700_000_000, "bd": 25_000_000_000}
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# a file takes whole sectors and one more for its entry; the file system takes some space for itself
SECTOR = 2048
FILE_SYSTEM = 1 << 20
# at most this much of the description belongs to one file or piece
DESCRIBED = 160


@dataclass
class Plan:
    """What goes where: names of files and their sizes by medium, and how big blobs are cut.

    `space` counts the bytes that files may take on each medium.
    """

    space: int
    media: list[dict[str, int]] = field(default_factory=lambda: [{}])
    cut: dict[str, list[Piece]] = field(default_factory=dict)
    # what is left of each medium, and every name on one, so that nothing is added up anew for each file
    _left: list[int] = field(init=False)
    _placed: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        """Begin with one empty medium."""
        self._left = [self.space]

    def put(self, name: str, size: int) -> None:
        """Put a file on the first medium that has space for it; a piece that is there already serves twice."""
        if name in self._placed:
            return
        self._placed.add(name)
        number = next((number for number, left in enumerate(self._left) if cost(size) <= left), len(self.media))
        if number == len(self.media):
            self.media.append({})
            self._left.append(self.space)
        self.media[number][name] = size
        self._left[number] -= cost(size)


def capacity(text: str) -> int:
    """Return the bytes that `dvd`, `cd`, `bd`, `4.7GB`, `650MiB` or a plain number stand for; raises InputError."""
    if text in DISCS:
        return DISCS[text]
    parts = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([A-Za-z]*)", text)
    if parts is None or parts[2] not in UNITS:
        known = ", ".join([*DISCS, *filter(None, UNITS)])
        raise InputError(f"{text!r} is no size", where="--size", hint=f"give a number with a unit, or one of {known}")
    return int(float(parts[1]) * UNITS[parts[2]])


def cost(size: int) -> int:
    """Return how many bytes of a disc a file of `size` bytes takes."""
    return -(-size // SECTOR) * SECTOR + SECTOR


def split(folder: Path, size: int, key: SigningKey, below: Path, progress: Progress = silent) -> list[Path]:
    """Write the media of the bundle, or of the delta, in `folder` into a folder of their own below `below`.

    `size` counts the bytes of one disc. Media appear all at once. Raises InputError where they would be too small,
    IntegrityError for a bundle that is not whole, ConflictError where it is signed with another key.
    """
    found = verify(folder, key.public_key(), progress)
    carry.require_maker(found, key)
    if found.of_set:
        raise InputError("this is one of several media already", where=str(folder), hint="split the whole bundle")
    plan = _plan(found, size)
    final = below / f"{folder.resolve().name}-media"
    staging = below / f".{final.name}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    count = len(plan.media)
    names = [f"{number:0{len(str(count))}}-of-{count}" for number in range(1, count + 1)]
    below.mkdir(parents=True, exist_ok=True)
    with space_on(below, staging):
        for number, name in enumerate(names, 1):
            progress(f"write medium {number} of {count}")
            medium = Medium(
                bundle=hashlib.sha256(found.content).hexdigest(),
                number=number,
                files=[sorted(files) for files in plan.media],
                cut=plan.cut,
                since=found.medium.since if found.medium else None,
                capacity=size,
            )
            carry.write(found, medium, key, staging / name)
    bundles.replace_folder(staging, final)
    return [final / name for name in names]


def _plan(found: Verified, size: int) -> Plan:
    """Decide what goes where: first what the installer needs, then the biggest first, each where there is space."""
    sizes = found.files()
    around = sum(cost((found.folder / name).stat().st_size) for name in carry.beside(found))
    pieces_at_most = 2 * sum(sizes.values()) // max(size, FILE_SYSTEM) + 2
    around += FILE_SYSTEM + cost(1) + cost(DESCRIBED * (len(sizes) + pieces_at_most))
    first = {blob: sizes[blob] for blob in needed.installer_wheels(found) if blob in sizes}
    least = max(around + SECTOR * 64, around + taken(first))
    if size < least:
        raise InputError(
            f"a medium of {size / 1e6:.1f} MB is too small: what every medium and the installer need takes "
            f"{least / 1e6:.1f} MB",
            where="--size",
            hint="take bigger media",
        )
    plan = Plan(size - around)
    for blob, length in first.items():
        plan.put(blob, length)
    whole = {blob: size for blob, size in sizes.items() if blob not in first}
    for blob in sorted(blob for blob in whole if cost(whole[blob]) > plan.space):
        del whole[blob]
        plan.cut[blob] = _pieces(found.folder / BLOBS / blob, plan.space - SECTOR)
    pieces = {piece.sha256: piece.size for cut in plan.cut.values() for piece in cut}
    for name, length in sorted((whole | pieces).items(), key=lambda item: (-item[1], item[0])):
        plan.put(name, length)
    return plan


def _pieces(path: Path, space: int) -> list[Piece]:
    """Return the pieces of a blob, each of whole sectors but for the last."""
    length = space // SECTOR * SECTOR
    pieces: list[Piece] = []
    with path.open("rb") as file:
        while True:
            found, read = hashlib.sha256(), 0
            while read < length and (content := file.read(min(CHUNK, length - read))):
                found.update(content)
                read += len(content)
            if not read:
                return pieces
            pieces.append(Piece(sha256=found.hexdigest(), size=read))


def taken(files: dict[str, int]) -> int:
    """Return how many bytes of a disc some files take, which are sizes by name."""
    return sum(cost(size) for size in files.values())
