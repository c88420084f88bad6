"""The core metadata in a wheel, whatever was made of the wheel: sizes are looked at before anything is unpacked."""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

# far more than any real wheel says of itself
LARGEST = 16 << 20
# where a wheel's `.data` may put files
SCHEMES = {"purelib", "platlib", "headers", "scripts", "data"}


def read(path: Path) -> bytes:
    """Return the metadata of a wheel; raises ValueError that says why it has none that can be read.

    One with several metadata, or with members that leave its folder, is none for whoever installs it.
    """
    return _read(path).metadata


def read_named(path: Path, filename: str) -> bytes:
    """Return the metadata of a wheel; raises ValueError as well where it is not of what the file name says."""
    folder, metadata, wheel = _read(path)
    said = BytesHeaderParser().parsebytes(metadata)
    name, version = str(said.get("Name", "")), str(said.get("Version", ""))
    wanted, number, _, _ = parse_wheel_filename(filename)
    if (canonicalize_name(name), Version(version)) != (wanted, number):
        raise ValueError(f"its metadata is of {name} {version}")
    if not canonicalize_name(folder).startswith(wanted):
        raise ValueError(f"its metadata lies in {folder}")
    _require_installable(metadata, said.get_all("Requires-Dist", []), wheel)
    return metadata


def _require_installable(metadata: bytes, requirements: Iterable[object], wheel: bytes) -> None:
    """Raise ValueError where pip would not take what a wheel says of itself."""
    try:
        metadata.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"its METADATA is not in UTF-8: {error}") from error
    for requirement in map(str, requirements):
        try:
            Requirement(requirement)
        except InvalidRequirement as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"its METADATA has a Requires-Dist that cannot be read: {requirement!r}: {reason}"
            ) from error
    version = str(BytesHeaderParser().parsebytes(wheel).get("Wheel-Version", ""))
    if not re.fullmatch(r"[01](\.\d+)*", version.strip()):
        raise ValueError(f"its WHEEL has the Wheel-Version {version!r}, 1.0 is known")


class _Parts(NamedTuple):
    """What a wheel says of itself, and the folder that has it."""

    folder: str
    metadata: bytes
    wheel: bytes


def _read(path: Path) -> _Parts:
    try:
        with zipfile.ZipFile(path) as wheel:
            entry = _entry(wheel.infolist())
            if entry.file_size > LARGEST:
                raise ValueError(f"its metadata has {entry.file_size} bytes, {LARGEST} are allowed")
            folder = entry.filename.partition("/")[0]
            described = [member for member in wheel.infolist() if member.filename == f"{folder}/WHEEL"]
            if any(member.file_size > LARGEST for member in described):
                raise ValueError(f"its WHEEL is longer than {LARGEST} bytes")
            return _Parts(folder, wheel.read(entry), wheel.read(described[-1]) if described else b"")
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
        data = len(place.parts) > 1 and place.parts[0].endswith(".data")
        if data and not member.is_dir() and (len(place.parts) < 3 or place.parts[1] not in SCHEMES):
            raise ValueError(f"a member is for no place of an installation: {member.filename}")
    folders = {top for member in members if (top := member.filename.partition("/")[0]).endswith(".dist-info")}
    wanted = {f"{folder}/METADATA" for folder in folders}
    found = [member for member in members if member.filename in wanted]
    if not found:
        raise ValueError("the wheel has no metadata")
    if len(found) > 1 or len(folders) > 1:
        raise ValueError("it has several metadata")
    return found[0]
