"""Checks of what pip asks of a wheel when it installs it: where members go, what the record and scripts say."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Iterable, Sequence
from email.parser import BytesHeaderParser
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from common.files import LONGEST_NAME

# where modules go, and what the folders of a wheel's `.data` hold, below the environment that it is installed into
MODULES = "lib/modules"
SCHEMES = {"purelib": MODULES, "platlib": MODULES, "headers": "include", "scripts": "bin", "data": ""}
DATA = ".data"
# folders of every environment
ALWAYS = {"bin", "lib"}
SCRIPTS = ("console_scripts", "gui_scripts")
TARGET = re.compile(r"(?P<name>\w+([.:]\w+)*)\s*(?P<extras>\[\s*[\w-]+(=\w+)?(,\s*\w+(=\w+)?)*\s*\])?")


def require_version(wheel: bytes) -> None:
    """Raise ValueError where the `WHEEL` of a wheel is of a version that pip does not install."""
    version = str(BytesHeaderParser().parsebytes(wheel).get("Wheel-Version", ""))
    if not re.fullmatch(r"[01](\.\d+)*", version.strip()):
        raise ValueError(f"its WHEEL has the Wheel-Version {version!r}, 1.0 is known")


def require_metadata(metadata: bytes, requirements: Iterable[str]) -> None:
    """Raise ValueError where the metadata is not in UTF-8, or names a requirement that is none."""
    try:
        metadata.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"its METADATA is not in UTF-8: {error}") from error
    for requirement in requirements:
        try:
            Requirement(requirement)
        except InvalidRequirement as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"its METADATA has a Requires-Dist that cannot be read: {requirement!r}: {reason}"
            ) from error


def require_record(content: bytes | None) -> None:
    """Raise ValueError where a wheel has no list of its files, or one that cannot be read; it may leave out some."""
    if content is None:
        raise ValueError("it has no RECORD")
    try:
        for number, row in enumerate(csv.reader(content.decode().splitlines()), 1):
            if not row:
                raise ValueError(f"its RECORD has an empty line: line {number}")
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"its RECORD cannot be read: {error}") from error


def scripts(content: bytes) -> list[str]:
    """Return the names of the scripts that `entry_points.txt` makes.

    Raises ValueError for one that lies elsewhere than beside the others, or does not name a function of a module.
    """
    try:
        lines = [line.strip() for line in content.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(f"its entry_points.txt is not in UTF-8: {error}") from error
    section, found = None, []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line.strip("[]")
            continue
        name, equals, target = map(str.strip, line.partition("="))
        # what stands above all sections is passed over
        if section is not None and not equals:
            raise ValueError(f"its entry_points.txt has a line that is no entry point: {line!r}")
        if section in SCRIPTS:
            _require_script(name, target, line)
            found.append(name)
    return found


def _require_script(name: str, target: str, line: str) -> None:
    where = posixpath.normpath(name)
    if not name or re.search(r"\s", name) or where.startswith(("/", "../")) or where in (".", ".."):
        raise ValueError(f"it has a script of no name that a script can have: {line!r}")
    found = TARGET.match(target)
    # a bracket that is no list of extras is no end of a target either
    odd = re.search(r"[\[\]]", line) and not (found and found["extras"])
    if not found or odd or found["name"].count(":") != 1:
        raise ValueError(f"it has a script without a target, such as `module:function`: {line!r}")


def require_places(members: Iterable[str], scripts: Iterable[str], name: NormalizedName, version: Version) -> None:
    """Raise ValueError where a file has no place of its own below the environment.

    It may lie in the `.data` of another wheel, or in none of its folders, or where others need a folder.
    """
    places = {_place(PurePosixPath(member).parts, name, version) for member in members}
    places.update(posixpath.normpath(f"bin/{script}") for script in scripts)
    folders = set(ALWAYS)
    for place in places:
        folder = posixpath.dirname(place)
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    if both := sorted(places & folders):
        raise ValueError(f"it has a file where a folder is: {both[0].removeprefix(f'{MODULES}/')}")


def _place(parts: Sequence[str], name: NormalizedName, version: Version) -> str:
    """Return where a file goes, below the environment."""
    shown = "/".join(parts)
    if long := next((part for part in parts if len(part.encode()) > LONGEST_NAME), None):
        raise ValueError(f"a member has a name of more than {LONGEST_NAME} bytes: {long}")
    if not parts or not parts[0].endswith(DATA):
        return posixpath.join(MODULES, *parts)
    if not _belongs(parts[0].removesuffix(DATA), name, version):
        raise ValueError(f"a member is for the installation of another wheel: {shown}")
    if len(parts) < 3 or parts[1] not in SCHEMES:
        raise ValueError(f"a member is for no place of an installation: {shown}")
    return posixpath.join(SCHEMES[parts[1]], *parts[2:])


def _belongs(folder: str, name: NormalizedName, version: Version) -> bool:
    """Say whether a wheel's `.data` is called so, in whatever spelling."""
    project, _, number = folder.rpartition("-")
    try:
        return canonicalize_name(project) == name and Version(number) == version
    except InvalidVersion:
        return False
