"""Layers: what changed in a root file system since the layer below, as a tar whose bits depend on nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from common import process
from reservoir.artifacts.image.inside import remove
from reservoir.artifacts.image.oci import Layer
from reservoir.download.cache import digest

LEVEL = 1
GZIP = 16 + zlib.MAX_WBITS
# a layer says by this prefix that a file of the layers below is gone
GONE = ".wh."
UNPACK = ["--numeric-owner", "--same-permissions", "--same-owner", "--xattrs", "--xattrs-include=*"]

# every path below a root with all that a layer keeps of it
Snapshot = dict[Path, tuple[object, ...]]


def snapshot(root: Path, timestamp: int) -> Snapshot:
    """Return what lies below `root`; times later than `timestamp` count as that, as they do in a layer."""
    return {path.relative_to(root): _state(path, timestamp) for path in _paths(root)}


def changes(before: Snapshot, after: Snapshot) -> tuple[list[Path], list[Path]]:
    """Return the paths that are new or different, and those that are gone from a folder which is still there."""
    changed = [path for path, state in after.items() if before.get(path) != state]
    gone = [path for path in before.keys() - after.keys() if _is_folder(after, path.parent)]
    return sorted(changed), sorted(gone)


def pack(root: Path, changed: Iterable[Path], gone: Iterable[Path], path: Path, timestamp: int) -> Layer:
    """Pack some paths of a root file system into a gzip file; nothing in it is newer than `timestamp`.

    `gone` are paths that a layer below has and this one takes away.
    """
    markers = [name.with_name(GONE + name.name) for name in gone]
    for marker in markers:
        (root / marker).touch(mode=0o644)
    names = sorted([*changed, *markers])
    listed = path.with_suffix(".names")
    listed.write_bytes(b"".join(os.fsencode(f"./{name}") + b"\0" for name in names))
    packed, plain = hashlib.sha256(), hashlib.sha256()
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    with path.open("wb") as file:
        for piece in _tar(root, listed, timestamp):
            plain.update(piece)
            data = compressor.compress(piece)
            packed.update(data)
            file.write(data)
        data = compressor.flush()
        packed.update(data)
        file.write(data)
    for marker in markers:
        (root / marker).unlink()
    return Layer(packed.hexdigest(), path.stat().st_size, plain.hexdigest())


def unpack(path: Path, root: Path) -> None:
    """Lay a layer over the root file system at `root`, as a container engine does."""
    root.mkdir(exist_ok=True)
    with tarfile.open(path) as tar:
        for member in tar:
            name = Path(member.name)
            if name.name.startswith(GONE):
                remove(root / name.parent / name.name.removeprefix(GONE))
            elif not member.isdir() and (root / name).is_dir() and not (root / name).is_symlink():
                shutil.rmtree(root / name)
    command = ["tar", "--extract", "--gzip", f"--file={path}", f"--directory={root}", *UNPACK]
    process.run([*command, "--wildcards", f"--exclude={GONE}*"])


def _paths(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *files))


def _state(path: Path, timestamp: int) -> tuple[object, ...]:
    """Return all that a layer keeps of a path."""
    found = path.lstat()
    kept: list[object] = [found.st_mode, found.st_uid, found.st_gid, min(int(found.st_mtime), timestamp)]
    if stat.S_ISLNK(found.st_mode):
        kept.append(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        kept.append(digest(path))
    elif not stat.S_ISDIR(found.st_mode):
        kept.append(found.st_rdev)
    names = os.listxattr(path, follow_symlinks=False)
    kept.append([(name, os.getxattr(path, name, follow_symlinks=False)) for name in sorted(names)])
    return tuple(kept)


def _is_folder(snapshot: Snapshot, path: Path) -> bool:
    mode = snapshot[path][0] if path in snapshot else None
    return path == Path() or (isinstance(mode, int) and stat.S_ISDIR(mode))


def _tar(root: Path, listed: Path, timestamp: int) -> Iterator[bytes]:
    """Yield a tar of the listed paths with owners, order and times that do not depend on when it was made."""
    options = [f"--mtime=@{timestamp}", "--clamp-mtime", "--numeric-owner", "--format=posix", "--no-recursion"]
    # without these GNU tar writes its process number and the times of access into the archive
    options += ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
    options += ["--xattrs", "--xattrs-include=*", "--null", "--verbatim-files-from", f"--files-from={listed}"]
    return process.stream(["tar", f"--directory={root}", *options, "--create", "--file=-"])
