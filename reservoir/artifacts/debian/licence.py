"""The licences that a Debian package states in its copyright file."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

from common import process
from reservoir.artifacts import licence_names
from reservoir.artifacts.debian.members import Bounded, Part, Pieces
from reservoir.artifacts.licence import Found, expression, headed, named, spdx_names

# Debian's short names where they differ from SPDX; `GPL-2+` and the like follow a rule
DEBIAN = {"expat": "MIT", "x11": "X11", "psf-2": "PSF-2.0", "zlib": "Zlib", "isc": "ISC", "openldap": "OLDAP-2.8"}
GNU = re.compile(
    r"(?:GNU-)?(AGPL|LGPL|GPL|Affero(?:-GPL)?)(?:-?v?|-v)([123](?:\.[01])?)(?:(\+|-or-later)|-only)?", re.IGNORECASE
)
HEAD = re.compile(r"^Format(-Specification)?:", re.MULTILINE | re.IGNORECASE)
STATED = re.compile(r"^Licen[cs]e[ \t]*:[ \t]*(?:\n[ \t]+)?(\S[^\n]*)$", re.MULTILINE | re.IGNORECASE)
COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])")
AR_HEAD = 60
# more than the longest copyright file that a distribution has: each word of it is looked at for each family
LONGEST = 2 << 20


def read(name: str, path: Path) -> Found:
    """Read `usr/share/doc/NAME/copyright` from a Debian package, which is an `ar` archive of two `tar` archives."""
    documents = f"usr/share/doc/{name}"
    with path.open("rb") as file, tarfile.open(fileobj=_data(file, path), mode="r|*", tarinfo=Bounded) as archive:
        for member in archive:
            place = member.name.removeprefix("./").rstrip("/")
            if place == documents and member.issym():
                return Found(same_as=member.linkname.rstrip("/").rpartition("/")[2])
            if place == f"{documents}/copyright":
                if member.issym() or member.islnk():
                    return Found(same_as=(member.linkname.split("/")[-2:] or [""])[0])
                if member.size > LONGEST:
                    raise ValueError(f"its copyright file has {member.size} bytes, {LONGEST} are allowed")
                content = archive.extractfile(member)
                return copyright_file(content.read().decode("utf-8", "replace")) if content else Found()
    return Found()


def copyright_file(text: str) -> Found:
    """Return the licences that a Debian copyright file names: all of them, as parts of the package have them."""
    if HEAD.search(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0]):
        names = {part for line in STATED.findall(text) for part in _parts(line)}
        if names:
            said = " ".join(names)
            # the text below a field may be another one
            below = (*licence_names.titles(text), *licence_names.terms(text), *headed(text))
            pasted = [name for name in below if not _says(said, name)]
            names.update(f"LicenseRef-Debian-{name}" for name in pasted)
            return Found(expression(" AND ".join(sorted(names))), "copyright (machine-readable)")
    pointed = COMMON.findall(text)
    if not pointed:
        return Found()
    files = " ".join(pointed)
    # a text that nothing points to is there as a whole
    beside = [name for name in named(text) if not _says(files, name)]
    for family, versions in licence_names.versions(COMMON.sub(" ", text)).items():
        # and another version than that of the file
        others = [f"{family}-{version}" for version in versions] if _says(files, family) else [family]
        beside += [name for name in others if not _says(files, name)]
    names = {f"LicenseRef-Debian-{name}" for name in (*pointed, *beside)}
    return Found(" AND ".join(sorted(names)), "copyright (files that its text points to)")


def _says(words: str, name: str) -> bool:
    """Say whether names of licences are of a family, or of a version of it."""
    return re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z0-9])", words) is not None


def _parts(line: str) -> list[str]:
    """Return what holds together in a licence line of Debian's, in SPDX words.

    `GPL-2+ or MIT and BSD` has `and` bind stronger, as SPDX; `GPL-2+ or MIT, and BSD` has it bind weaker.
    """
    if "(" in line:
        # Debian has no brackets, so that nobody can tell what binds what
        return [_own(line)]
    # blanks in a row would be tried one by one
    line = " ".join(line.split())
    return [name for part in re.split(", and ", line, flags=re.IGNORECASE) for name in _choice(part)]


def _choice(text: str) -> list[str]:
    choices = re.split(",? or ", text, flags=re.IGNORECASE)
    wholes = [
        " AND ".join(_debian(name) for name in re.split(" and ", choice, flags=re.IGNORECASE)) for choice in choices
    ]
    if len(wholes) == 1:
        return wholes[0].split(" AND ")
    return ["(" + " OR ".join(f"({whole})" if " AND " in whole else whole for whole in wholes) + ")"]


def _debian(name: str) -> str:
    """Return one of Debian's short names as SPDX writes it, or as a name of Debian's own."""
    base, _, rest = name.strip().partition(" ")
    if gnu := GNU.fullmatch(base):
        family, version = "AGPL" if gnu[1].lower().startswith("affero") else gnu[1].upper(), gnu[2]
        if rest:
            return _own(f"{family}-{version}{'+' if gnu[3] else ''} {rest}")
        return f"{family}-{version if '.' in version else f'{version}.0'}-{'or-later' if gnu[3] else 'only'}"
    if not rest and base.lower() in DEBIAN:
        return DEBIAN[base.lower()]
    if not rest and (known := spdx_names().get(base.lower())):
        return known
    return _own(name)


def _own(name: str) -> str:
    """Return a name of Debian's own in a form that SPDX allows."""
    return "LicenseRef-Debian-" + re.sub(r"[^A-Za-z0-9.]+", "-", name.strip().replace("+", "-or-later")).strip("-")


def _data(file: BinaryIO, path: Path) -> Any:
    """Return the part of a Debian package that holds its files."""
    if file.read(8) != b"!<arch>\n":
        raise ValueError("not a Debian package")
    while head := file.read(AR_HEAD):
        name, said = head[:16].decode("ascii").strip().rstrip("/"), head[48:58].strip()
        if not said.isdigit():
            raise ValueError("a part of the package has no size")
        size = int(said)
        if name == "data.tar.zst":
            # as Ubuntu packs them; Python has nothing for it
            program = process.require("dpkg-deb", "dpkg")
            return io.BufferedReader(Pieces(process.stream([program, "--fsys-tarfile", path])))
        if name.startswith("data.tar"):
            return io.BufferedReader(Part(file, size))
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError("the package has no files")
