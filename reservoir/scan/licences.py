"""Licences as packages state them, in SPDX words: wheels in their metadata, Debian packages in their copyright file."""

from __future__ import annotations

import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from license_expression import ExpressionError, ExpressionParseError, Licensing, get_spdx_licensing
from packaging.metadata import parse_email

from common import files
from reservoir.contents.model import Artifact
from reservoir.download.cache import Cache

# what stands in metadata for a licence; the classifiers that leave a version or a choice open are not here
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "LicenseRef-BSD",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zope Public License": "ZPL-2.1",
    "zlib/libpng License": "Zlib",
    "Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
    "European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
}
# Debian's short names where they differ from SPDX; `GPL-2+` and the like follow a rule
DEBIAN = {"expat": "MIT", "x11": "X11", "psf-2": "PSF-2.0", "zlib": "Zlib", "isc": "ISC", "openldap": "OLDAP-2.8"}
FEDORA = {"ASL 2.0": "Apache-2.0", "MPLv2.0": "MPL-2.0", "MPLv1.1": "MPL-1.1", "BSD": "LicenseRef-BSD",
          "Public Domain": "LicenseRef-Public-Domain", "Python": "PSF-2.0", "Boost": "BSL-1.0"}  # fmt: skip
WORDS = {"mit": "MIT", "mit license": "MIT", "the mit license": "MIT", "apache 2.0": "Apache-2.0",
         "apache license 2.0": "Apache-2.0", "apache license, version 2.0": "Apache-2.0", "apache 2": "Apache-2.0",
         "bsd": "LicenseRef-BSD", "bsd license": "LicenseRef-BSD", "bsd 3-clause": "BSD-3-Clause",
         "bsd-3-clause license": "BSD-3-Clause", "isc license": "ISC", "mpl 2.0": "MPL-2.0"}  # fmt: skip
GNU = re.compile(r"^(A?GPL|LGPL)-([123](?:\.[01])?)(\+)?$", re.IGNORECASE)
COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])")
AR_HEAD = 60
FAILED = "cannot be read"
# counts up when the same file gives another licence
READING = 1


@dataclass(frozen=True)
class Found:
    """The licence of a file, None where it is not known; `source` says where it stands.

    `same_as` names the package whose copyright file stands for this one's, too.
    """

    expression: str | None = None
    source: str = ""
    same_as: str = ""

    @property
    def failed(self) -> bool:
        """Say whether the file could not be read, which another try may mend."""
        return self.source.startswith(FAILED)


def read_all(artifacts: Iterable[Artifact], cache: Cache) -> dict[str, Found]:
    """Return the licence of every package by its hash; what was read once is remembered in the cache."""
    memory = cache.root / f"licences-{READING}.json"
    try:
        known = {sha256: Found(**entry) for sha256, entry in json.loads(memory.read_text()).items()}
    except (FileNotFoundError, ValueError, TypeError):
        known = {}
    every = list(artifacts)
    wanted = {a.sha256: a for a in every if a.kind in ("python", "debian")}
    new = [artifact for sha256, artifact in wanted.items() if sha256 not in known]
    if new:
        with ThreadPoolExecutor(2) as pool:
            found = pool.map(lambda artifact: read(artifact, cache.path(artifact.sha256)), new)
            known |= {artifact.sha256: licence for artifact, licence in zip(new, found, strict=True)}
        lasting = {sha256: vars(licence) for sha256, licence in sorted(known.items()) if not licence.failed}
        files.write(memory, json.dumps(lasting))
    by_name = {a.name: known[a.sha256] for a in wanted.values() if a.kind == "debian" and not known[a.sha256].same_as}
    stated = {a.sha256: read(a, cache.path(a.sha256)) for a in every if a.kind == "rpm"}
    return stated | {sha256: by_name.get(known[sha256].same_as, known[sha256]) for sha256 in wanted}


def read(artifact: Artifact, path: Path) -> Found:
    """Return the licence that a package states."""
    if artifact.kind == "rpm":
        text = str(artifact.metadata.get("license") or "")
        return Found(_expression(text) or _expression(_fedora(text)), "License of the package")
    try:
        return _wheel(path) if artifact.kind == "python" else _deb(artifact.name, path)
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError) as error:
        return Found(None, f"{FAILED}: {error}")


def _wheel(path: Path) -> Found:
    with zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        if not names:
            raise ValueError("the wheel has no metadata")
        raw, _ = parse_email(archive.read(names[0]))
    if expression := _expression(raw.get("license_expression", "")):
        return Found(expression, "License-Expression")
    stated = [line.rpartition(" :: ")[2] for line in raw.get("classifiers", []) if line.startswith("License :: ")]
    named = [CLASSIFIERS[word] for word in stated if word in CLASSIFIERS]
    text = raw.get("license", "")
    if "\n" not in text and (expression := _expression(text)) and (not named or "LicenseRef-BSD" in named):
        return Found(expression, "License")
    if named:
        # several classifiers do not say whether one may choose
        return Found(_expression(" AND ".join(sorted(set(named)))), "Classifier")
    return Found()


def _deb(name: str, path: Path) -> Found:
    """Read `usr/share/doc/NAME/copyright` from a Debian package, which is an `ar` archive of two `tar` archives."""
    documents = f"usr/share/doc/{name}"
    with path.open("rb") as file, tarfile.open(fileobj=_data(file), mode="r|*") as archive:
        for member in archive:
            place = member.name.removeprefix("./").rstrip("/")
            if place == documents and member.issym():
                return Found(same_as=member.linkname.rstrip("/").rpartition("/")[2])
            if place == f"{documents}/copyright":
                if member.issym() or member.islnk():
                    return Found(same_as=(member.linkname.split("/")[-2:] or [""])[0])
                content = archive.extractfile(member)
                return copyright_file(content.read().decode("utf-8", "replace")) if content else Found()
    return Found()


def copyright_file(text: str) -> Found:
    """Return the licences that a Debian copyright file names: all of them, as parts of the package have them."""
    if re.match(r"\s*Format(-Specification)?:", text):
        stated = re.findall(r"^License:[ \t]*(\S[^\n]*)$", text, re.MULTILINE)
        names = {part for line in stated for part in _alternatives(line)}
        if names:
            return Found(_expression(" AND ".join(sorted(names))), "copyright (machine-readable)")
    names = {f"LicenseRef-Debian-{name}" for name in COMMON.findall(text)}
    return Found(" AND ".join(sorted(names)) or None, "copyright (files that its text points to)" if names else "")


def _alternatives(line: str) -> list[str]:
    """Return a licence line of Debian's in SPDX words: `GPL-2+ or MIT and BSD` has `and` bind stronger, as SPDX."""
    choices = re.split(r",?\s+or\s+", line.strip())
    wholes = [" AND ".join(_debian(name) for name in re.split(r",?\s+and\s+", choice)) for choice in choices]
    if len(wholes) == 1:
        return wholes[0].split(" AND ")
    return ["(" + " OR ".join(f"({whole})" if " AND " in whole else whole for whole in wholes) + ")"]


def _debian(name: str) -> str:
    """Return one of Debian's short names as SPDX writes it, or as a name of Debian's own."""
    base, _, rest = name.strip().partition(" ")
    gnu = GNU.match(base)
    if gnu and not rest:
        version = gnu[2] if "." in gnu[2] else f"{gnu[2]}.0"
        return f"{gnu[1].upper()}-{version}-{'or-later' if gnu[3] else 'only'}"
    if not rest and base.lower() in DEBIAN:
        return DEBIAN[base.lower()]
    if not rest and (known := _spdx().get(base.lower())):
        return known
    return "LicenseRef-Debian-" + re.sub(r"[^A-Za-z0-9.]+", "-", name.strip().replace("+", "-or-later")).strip("-")


def _fedora(text: str) -> str:
    """Return what the packages of RPM distributions said before they took SPDX: `GPLv2+ and (ASL 2.0 or BSD)`."""

    def gnu(found: re.Match[str]) -> str:
        version = found[2] if "." in found[2] else f"{found[2]}.0"
        return f"{found[1]}-{version}-{'or-later' if found[3] else 'only'}"

    text = re.sub(r"\b([AL]?GPL)v([23](?:\.1)?)(\+)?(?![\w.])", gnu, text)
    for word, name in FEDORA.items():
        text = re.sub(rf"\b{re.escape(word)}(?![\w.-])", name, text)
    return text


def _expression(text: str) -> str | None:
    """Return an SPDX expression in its usual form; None where it is not one."""
    text = WORDS.get(text.strip().lower(), text.strip())
    if not text or len(text) > 2000:
        return None
    try:
        parsed = _licensing().parse(text, validate=False)
    except (ExpressionError, ExpressionParseError):
        return None
    strange = [name for name in _licensing().unknown_license_keys(parsed) if not name.startswith("LicenseRef-")]
    return None if parsed is None or strange else str(parsed.render())


@cache
def _licensing() -> Licensing:
    licensing = get_spdx_licensing()
    # what finds the names is made at the first use, and a second thread would find it half made
    licensing.get_advanced_tokenizer()
    return licensing


@cache
def _spdx() -> Mapping[str, str]:
    return {name.lower(): name for name in _licensing().known_symbols}


def _data(file: BinaryIO) -> Any:
    """Return the part of a Debian package that holds its files."""
    if file.read(8) != b"!<arch>\n":
        raise ValueError("not a Debian package")
    while head := file.read(AR_HEAD):
        name, size = head[:16].decode("ascii").strip().rstrip("/"), int(head[48:58])
        if name.startswith("data.tar"):
            return io.BufferedReader(_Part(file, size))
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError("the package has no files")


class _Part(io.RawIOBase):
    """So many bytes of a file, from where it stands."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(min(len(buffer), self._left))
        buffer[: len(content)] = content
        self._left -= len(content)
        return len(content)
