"""The core metadata in a wheel, whatever was made of the wheel: sizes are looked at before anything is unpacked."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

# far more than any real wheel says of itself
LARGEST = 16 << 20


def read(path: Path) -> bytes:
    """Return the metadata of a wheel; raises ValueError that says why it has none that can be read.

    One with several metadata, or with members that leave its folder, is none for whoever installs it.
    """
    return _read(path)[1]


def read_named(path: Path, filename: str) -> bytes:
    """Return the metadata of a wheel; raises ValueError as well where it is not of what the file name says."""
    folder, metadata = _read(path)
    said = BytesHeaderParser().parsebytes(metadata)
    name, version = str(said.get("Name", "")), str(said.get("Version", ""))
    wanted, number, _, _ = parse_wheel_filename(filename)
    if (canonicalize_name(name), Version(version)) != (wanted, number):
        raise ValueError(f"its metadata is of {name} {version}")
    if not canonicalize_name(folder).startswith(wanted):
        raise ValueError(f"its metadata lies in {folder}")
    return metadata


def _read(path: Path) -> tuple[str, bytes]:
    """Return the folder in a wheel that has the metadata, and these."""
    try:
        with zipfile.ZipFile(path) as wheel:
            entry = _entry(wheel.infolist())
            if entry.file_size > LARGEST:
                raise ValueError(f"its metadata has {entry.file_size} bytes, {LARGEST} are allowed")
            return entry.filename.partition("/")[0], wheel.read(entry)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, OverflowError) as error:
        # forged places in a file are the system's errors, too
        raise ValueError(f"the wheel is damaged: {error}") from error
    except (NotImplementedError, RuntimeError) as error:
        # a way of packing that nobody installs from, or a password
        raise ValueError(f"the wheel cannot be unpacked: {error}") from error


def _entry(members: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    """Return the member that is the metadata; a wheel may carry other packages' metadata deeper inside."""
    for member in members:
        place = PurePosixPath(member.filename)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"a member leaves its folder: {member.filename}")
    folders = {top for member in members if (top := member.filename.partition("/")[0]).endswith(".dist-info")}
    wanted = {f"{folder}/METADATA" for folder in folders}
    found = [member for member in members if member.filename in wanted]
    if not found:
        raise ValueError("the wheel has no metadata")
    if len(found) > 1 or len(folders) > 1:
        raise ValueError("it has several metadata")
    return found[0]
