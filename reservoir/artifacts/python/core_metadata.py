"""The core metadata in a wheel, whatever was made of the wheel: sizes are looked at before anything is unpacked."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Sequence
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from reservoir.artifacts.python import installable

# far more than any real wheel says of itself
LARGEST = 16 << 20
METADATA, WHEEL, RECORD, ENTRY_POINTS = "METADATA", "WHEEL", "RECORD", "entry_points.txt"


def read(path: Path) -> bytes:
    """Return the metadata of a wheel; raises ValueError that says why it has none that can be read.

    One with several metadata, or with members that leave its folder, is none for whoever installs it.
    """
    return _read(path, [METADATA]).said[METADATA]


def read_named(path: Path, filename: str) -> bytes:
    """Return the metadata of a wheel; raises ValueError as well where it is not of what the file name says."""
    folder, said, _ = _read(path, [METADATA])
    metadata = BytesHeaderParser().parsebytes(said[METADATA])
    name, version = str(metadata.get("Name", "")), str(metadata.get("Version", ""))
    wanted, number, _, _ = parse_wheel_filename(filename)
    if (canonicalize_name(name), Version(version)) != (wanted, number):
        raise ValueError(f"its metadata is of {name} {version}")
    if not canonicalize_name(folder).startswith(wanted):
        raise ValueError(f"its metadata lies in {folder}")
    return said[METADATA]


def require_installable(path: Path, filename: str) -> None:
    """Raise ValueError where pip does not read or install a wheel that `read_named` takes, or not as it says."""
    _, said, files = _read(path, [METADATA, WHEEL, RECORD, ENTRY_POINTS])
    metadata = BytesHeaderParser().parsebytes(said[METADATA])
    installable.require_metadata(said[METADATA], map(str, metadata.get_all("Requires-Dist", [])))
    installable.require_version(said.get(WHEEL, b""))
    name, number, _, _ = parse_wheel_filename(filename)
    installable.require_record(said.get(RECORD))
    scripts = installable.scripts(said.get(ENTRY_POINTS, b""))
    installable.require_places(files, scripts, name, number)


class _Parts(NamedTuple):
    """The folder of a wheel's metadata, what was read there, and the names of all files."""

    folder: str
    said: dict[str, bytes]
    files: list[str]


def _read(path: Path, names: Sequence[str]) -> _Parts:
    """Return what a wheel says of itself in the files of these names, where it has them."""
    try:
        with zipfile.ZipFile(path) as wheel:
            members = {member.filename: member for member in wheel.infolist()}
            folder = _folder(wheel.infolist())
            said = {}
            for name in names:
                if member := members.get(f"{folder}/{name}"):
                    if member.file_size > LARGEST:
                        raise ValueError(f"its {name} has {member.file_size} bytes, {LARGEST} are allowed")
                    said[name] = wheel.read(member)
            files = [name for name in members if not name.endswith("/")]
            return _Parts(folder, said, files)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, OverflowError) as error:
        # forged places in a file are the system's errors, too
        raise ValueError(f"the wheel is damaged: {error}") from error
    except (NotImplementedError, RuntimeError) as error:
        # a way of packing that nobody installs from, or a password
        raise ValueError(f"the wheel cannot be unpacked: {error}") from error


def _folder(members: list[zipfile.ZipInfo]) -> str:
    """Return the folder of the metadata; a wheel may carry other packages' metadata deeper inside."""
    for member in members:
        place = PurePosixPath(member.filename)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"a member leaves its folder: {member.filename}")
    folders = {top for member in members if (top := member.filename.partition("/")[0]).endswith(".dist-info")}
    wanted = {f"{folder}/{METADATA}" for folder in folders}
    found = [member for member in members if member.filename in wanted]
    if not found:
        raise ValueError("the wheel has no metadata")
    if len(found) > 1 or len(folders) > 1:
        raise ValueError("it has several metadata")
    return folders.pop()
