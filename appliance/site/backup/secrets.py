"""Secrets of a controller, and all that no bundle brings back: the site's authority, keys and state, and uploads."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from appliance.site.backup.sealing import Member
from appliance.site.inventory import RESERVOIR_ROOT, STATE
from common.errors import ConflictError, IntegrityError

MASTER = "master.tar.gz"
"""What the master alone has: local settings and the audit log."""

AUTHORITY = "pki"
PASSING = {"ansible", "backup-orders", "commands", "hosts.json", "lock", "rebuild", "runs"}
"""What of the state a next deploy makes anew."""
DATABASES = b"SQLite format 3\0"


@dataclass(frozen=True)
class Places:
    """Folders of a controller."""

    state: Path = Path(STATE)
    root: Path = Path(RESERVOIR_ROOT)
    index: Path = Path("/var/lib/penstock/index")
    settings: Path = Path("/etc/penstock")

    @property
    def parts(self) -> dict[str, Path]:
        """The folders by their names in the archive; the authority comes last, so that it is there when all is."""
        return {
            "index": self.index / "server",
            "keys": self.root / "keys",
            "settings": self.settings,
            "state": self.state,
        }


def members(places: Places, scratch: Path) -> Iterator[Member]:
    """Yield the files that a backup seals; `scratch` is a folder for copies of databases that are in use."""
    for part, folder in places.parts.items():
        for path in sorted(folder.rglob("*"), key=lambda path: (AUTHORITY in path.parts, path)):
            name = path.relative_to(folder)
            if not path.is_file() or path.is_symlink() or not _belongs(part, name):
                continue
            yield (_still(path, scratch) if part == "index" else path), f"{part}/{name}"


def put_back(archive: tarfile.TarFile, places: Places, *, master: Path) -> int:
    """Write what was sealed to where it belongs, and return how many files; `master` is the file for the master's.

    Raises ConflictError where the machine has a site, and IntegrityError for what no backup has.
    """
    require_bare(places)
    found = [(member, _target(member, places, master)) for member in archive if member.isfile()]
    for member, target in found:
        content = archive.extractfile(member)
        if content is not None:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.touch(0o600)
            with content, target.open("wb") as file:
                os.fchmod(file.fileno(), member.mode & 0o777)
                shutil.copyfileobj(content, file)
    # an interruption leaves no authority that looks whole
    beside = places.state / f".{AUTHORITY}"
    if beside.is_dir():
        os.sync()
        beside.rename(places.state / AUTHORITY)
    return len(found)


def require_bare(places: Places) -> None:
    """Raise ConflictError where the machine has a site."""
    if (places.state / AUTHORITY).exists():
        raise ConflictError(
            "this machine has the authority of a site already",
            where=str(places.state / AUTHORITY),
            hint="move the folder away if it is not to be kept",
        )


def _belongs(part: str, name: Path) -> bool:
    if part == "settings":
        return str(name).endswith(".local.env")
    if part == "state":
        return name.parts[0] not in PASSING
    return not name.name.endswith(("-journal", "-shm", "-wal"))


def _still(path: Path, scratch: Path) -> Path:
    """Return a file that nobody writes: of a database that is in use, a copy as it is at one moment."""
    with path.open("rb") as file:
        if file.read(len(DATABASES)) != DATABASES:
            return path
    copy = scratch / path.name
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    shutil.copymode(path, copy)
    return copy


def _target(member: tarfile.TarInfo, places: Places, master: Path) -> Path:
    """Return where a member belongs."""
    if member.name == MASTER:
        return master
    part, *rest = PurePosixPath(member.name).parts
    if part not in places.parts or not rest or ".." in rest or not _belongs(part, Path(*rest)):
        raise IntegrityError("it has a file that no backup has", where=member.name, hint="use another backup")
    if part == "state" and rest[0] == AUTHORITY:
        rest[0] = f".{AUTHORITY}"
    return places.parts[part].joinpath(*rest)
