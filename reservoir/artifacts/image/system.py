"""Packages of an operating system as its own lists in a root file system name them, in the words of advisories."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reservoir.artifacts.debian.describe import SOURCE
from reservoir.artifacts.rpm import database

OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
DPKG, DPKG_PARTS = "var/lib/dpkg/status", "var/lib/dpkg/status.d"
APK = ("lib/apk/db/installed", "usr/lib/apk/db/installed")
RPM = ("var/lib/rpm", "usr/lib/sysimage/rpm")
SQLITE = "rpmdb.sqlite"
# what older versions of rpm, and SUSE's, write, which nothing but rpm itself reads
OLD_RPM = ("Packages", "Packages.db")
PLACES = tuple(f"{folder}/" for folder in RPM)
# more than a system's own name takes
NAMED = 1 << 14
# more than any list in words is long
LARGEST = 64 << 20
# states of dpkg in which nothing of a package but its settings is there
ABSENT = ("config-files", "not-installed")


@dataclass(frozen=True)
class Installed:
    """A package that is installed, and the name and version by which advisories of `ecosystem` may mean it."""

    package: str
    ecosystem: str
    advised: str
    version: str


def wanted(path: str) -> bool:
    """Say whether a file of a root file system is one of the lists."""
    folder = path.rpartition("/")[0]
    database = folder in RPM and path.rpartition("/")[2] in (SQLITE, f"{SQLITE}-wal", *OLD_RPM)
    return path in (*OS_RELEASE, DPKG, *APK) or folder == DPKG_PARTS or database


def above(path: str) -> bool:
    """Say whether a path is a folder above one of the lists."""
    return any(place.startswith(f"{path}/") for place in (*OS_RELEASE, DPKG, f"{DPKG_PARTS}/", *APK, *PLACES))


def packages(files: Mapping[str, Path]) -> list[Installed]:
    """Return the packages that the lists name; `files` are those lists by their places in the root file system.

    Raises ValueError that says why they cannot be told.
    """
    release = next((_release(files[name]) for name in OS_RELEASE if name in files), {})
    found = [*_dpkg(files), *_apk(files), *_rpm(files)]
    if not found:
        raise ValueError("nobody says which packages are inside")
    ecosystem = _ecosystem(release)
    if not ecosystem:
        system = f"{release.get('ID', 'a system without a name')} {release.get('VERSION_ID', '')}".strip()
        raise ValueError(f"nobody says which advisories speak of {_shown(system)}")
    every = {Installed(package, ecosystem, name, version): None for package, name, version in found}
    return sorted(every, key=lambda one: (one.package, one.advised, one.version))


def _ecosystem(release: Mapping[str, str]) -> str:
    """Return the name that OSV has for a system; nothing where it has none."""
    system, version = release.get("ID", ""), release.get("VERSION_ID", "")
    major, minor = version.partition(".")[0], ".".join(version.split(".")[:2])
    if system == "ubuntu":
        lasting = re.fullmatch(r"\d*[02468]\.04", version)
        return f"Ubuntu:{version}{':LTS' if lasting else ''}" if version else ""
    if system in ("wolfi", "chainguard"):
        return system.capitalize()
    names = {
        "debian": f"Debian:{major}",
        "alpine": f"Alpine:v{minor}",
        "rocky": f"Rocky Linux:{major}",
        "almalinux": f"AlmaLinux:{major}",
        "rhel": f"Red Hat:enterprise_linux:{major}",
    }
    return names.get(system, "") if version else ""


def _release(path: Path) -> dict[str, str]:
    found = {}
    for line in _beginning(path).splitlines():
        name, _, value = line.partition("=")
        with suppress(ValueError):
            found[name.strip()] = "".join(shlex.split(value))
    return found


def _dpkg(files: Mapping[str, Path]) -> Iterator[tuple[str, str, str]]:
    for name, path in files.items():
        part = name.startswith(f"{DPKG_PARTS}/") and not name.endswith(".md5sums")
        for stanza in re.split(r"\n\s*\n", _text(path)) if part or name == DPKG else ():
            fields = dict(re.findall(r"^(Package|Version|Status):[ \t]*(\S(?:.*\S)?)", stanza, re.MULTILINE))
            if "Package" not in fields or "Version" not in fields:
                continue
            if not fields.get("Status", "").endswith(ABSENT):
                source = SOURCE.search(stanza)
                advised = source[1] if source else fields["Package"]
                version = source[2] if source and source[2] else fields["Version"]
                yield fields["Package"], advised, version


def _apk(files: Mapping[str, Path]) -> Iterator[tuple[str, str, str]]:
    for name in APK:
        for stanza in re.split(r"\n\s*\n", _text(files[name])) if name in files else ():
            fields: dict[str, str] = dict(re.findall(r"^([PVo]):(.*)$", stanza, re.MULTILINE))
            if "P" in fields and "V" in fields:
                yield fields["P"], fields.get("o", fields["P"]), fields["V"]


def _rpm(files: Mapping[str, Path]) -> Iterator[tuple[str, str, str]]:
    for folder in RPM:
        if f"{folder}/{SQLITE}" in files:
            for rpm in database.read(files[f"{folder}/{SQLITE}"]):
                for name, version in rpm.advised:
                    yield rpm.name, name, version
        elif any(f"{folder}/{name}" in files for name in OLD_RPM):
            raise ValueError("the database of its RPM packages is of a form that rpm alone reads")


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(NAMED).decode(errors="replace")


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST:
        raise ValueError(f"the list of its packages has {path.stat().st_size} bytes, {LARGEST} are allowed")
    return path.read_text(errors="replace")


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:80])
