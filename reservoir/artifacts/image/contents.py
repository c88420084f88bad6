"""Contents of images from elsewhere: the packages of their systems, as the lists in their layers name them."""

from __future__ import annotations

import io
import lzma
import posixpath
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import process
from common.errors import PenstockError
from reservoir.artifacts.debian.members import Bounded, Pieces
from reservoir.artifacts.image import oci, system
from reservoir.artifacts.image.layer import GONE
from reservoir.artifacts.image.system import Installed

# the name by which a layer says that nothing of the layers below is in a folder any more
OPAQUE = ".wh..wh..opq"
ZSTD = b"\x28\xb5\x2f\xfd"
# more than the lists of any system have
LARGEST = 1 << 30
DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)


@dataclass(frozen=True)
class Contents:
    """The packages of an image. `unread` says what of it cannot be told, and `again` that another try may tell it."""

    packages: tuple[Installed, ...] = ()
    unread: str = ""
    again: bool = False


def read(sha256: str, blob: Callable[[str], Path]) -> Contents:
    """Return the packages of an image by its manifest, or index, of that hash; `blob` says where files lie."""
    found: dict[Installed, None] = {}
    reasons, again = [], False
    for layers in _roots(sha256, blob):
        try:
            found |= dict.fromkeys(_packages(layers))
        except ValueError as error:
            reasons.append(str(error))
        except PenstockError as error:
            reasons.append(error.problems[0].reason)
            again = True
        except DAMAGED as error:
            reasons.append(f"a layer cannot be read: {error}")
            # a full disk is no fault of the image
            again = again or (isinstance(error, OSError) and error.errno is not None)
    unread = "; ".join(dict.fromkeys(reasons))
    return Contents(tuple(found), unread if found or reasons else "nobody says which packages are inside", again)


def _roots(sha256: str, blob: Callable[[str], Path]) -> Iterator[list[Path]]:
    """Yield the layers of each architecture; what is no file system, as a signature, has none."""
    document = oci.read(blob(sha256).read_bytes(), sha256)
    for child in document.manifests:
        yield from _roots(child.sha256, blob)
    layers = [blob(layer.sha256) for layer in document.layers if ".tar" in layer.media_type]
    if layers:
        yield layers


def _packages(layers: list[Path]) -> list[Installed]:
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, Path] = {}
        for number, layer in enumerate(layers):
            lists = _lists(layer, Path(folder) / str(number))
            files = {name: path for name, path in files.items() if not lists.takes_away(name)} | lists.files
        return system.packages(_beside(files, Path(folder)))


@dataclass
class _Lists:
    """The lists of one layer, and what that takes away of the layers below: files, and all below some folders."""

    files: dict[str, Path] = field(default_factory=dict)
    size: int = 0
    gone: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)

    def takes_away(self, name: str) -> bool:
        """Say whether a file of the layers below is gone."""
        return name in self.gone or name.startswith(tuple(self.emptied))


def _lists(layer: Path, folder: Path) -> _Lists:
    """Take the lists out of a layer into a folder; raises ValueError where one leads elsewhere."""
    folder.mkdir()
    lists = _Lists()
    with _opened(layer) as file, tarfile.open(fileobj=file, mode="r|*", tarinfo=Bounded) as archive:
        for member in archive:
            name = posixpath.normpath(f"/{member.name}").lstrip("/")
            above, _, last = name.rpartition("/")
            if last == OPAQUE and (not above or system.above(above)):
                lists.emptied.add(f"{above}/" if above else "")
            elif last.startswith(GONE):
                lost = posixpath.join(above, last.removeprefix(GONE))
                if system.wanted(lost):
                    lists.gone.add(lost)
                elif system.above(lost):
                    lists.emptied.add(f"{lost}/")
            elif system.wanted(name):
                if not _taken(archive, member, folder / str(len(lists.files)), lists, name):
                    lists.gone.add(name)
            elif not member.isdir() and system.above(name):
                # what is no folder any more has nothing below
                lists.emptied.add(f"{name}/")
    return lists


def _taken(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, lists: _Lists, name: str) -> bool:
    """Take a list out of a layer; a link to the other place of a system's name is passed over."""
    if member.isdir():
        return True
    if name in system.OS_RELEASE and not member.isreg():
        return False
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise ValueError(f"{name} is a link, which leads where nobody looks")
    lists.size += member.size
    if lists.size > LARGEST:
        raise ValueError(f"the lists of its packages have more than {LARGEST} bytes in a layer")
    with path.open("wb") as target:
        shutil.copyfileobj(content, target)
    lists.files[name] = path
    return True


def _beside(files: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Return the files, with what belongs to a database beside it under its own name."""
    placed = {}
    for name, path in files.items():
        placed[name] = path
        place, _, last = name.rpartition("/")
        if place in system.RPM:
            placed[name] = folder / place.replace("/", "-") / last
            placed[name].parent.mkdir(exist_ok=True)
            path.rename(placed[name])
    return placed


@contextmanager
def _opened(layer: Path) -> Iterator[Any]:
    """Open a layer; what zstd packed is unpacked by that program, as Python has nothing for it."""
    with layer.open("rb") as file:
        packed = file.read(4) == ZSTD
        file.seek(0)
        if not packed:
            yield file
            return
    pieces = process.stream([process.require("zstd", "zstd"), "--decompress", "--stdout", layer])
    with io.BufferedReader(Pieces(pieces)) as unpacked:
        yield unpacked
