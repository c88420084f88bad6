"""Databases of the RPM packages that are installed in a root file system, in the form that rpm 4.16 and later write."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from reservoir.artifacts.rpm.describe import SOURCE_RPM as SOURCE_NAME
from reservoir.artifacts.rpm.header import (
    DAMAGED,
    EPOCH,
    NAME,
    RELEASE,
    SOURCE_RPM,
    VERSION,
    Header,
    MalformedError,
    stored,
)

# keys that rpm trusts stand among the packages
KEY = "gpg-pubkey"
TABLE = re.compile(
    r"CREATE TABLE '?\"?Packages'?\"? ?\(\s*hnum INTEGER PRIMARY KEY( AUTOINCREMENT)?,\s*blob BLOB NOT NULL\s*\)"
)


@dataclass(frozen=True)
class InstalledRpm:
    """An installed package; `version` is epoch, version and release, `source` the file of its source package."""

    name: str
    version: str
    source: str

    @property
    def advised(self) -> list[tuple[str, str]]:
        """Return the names and versions by which advisories may mean it: its own, and its source's."""
        source = SOURCE_NAME.match(self.source)
        if source is None or source["name"] == self.name:
            return [(self.name, self.version)]
        epoch, colon, _ = self.version.rpartition(":")
        return [(self.name, self.version), (source["name"], f"{epoch}{colon}{source['version']}-{source['release']}")]


def read(path: Path) -> list[InstalledRpm]:
    """Return the packages in a database of SQLite; raises ValueError where it cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as database:
            return list(_packages(database))
    except (sqlite3.Error, *DAMAGED) as error:
        raise ValueError(f"the database of its RPM packages cannot be read: {error}") from error


def _packages(database: sqlite3.Connection) -> Iterator[InstalledRpm]:
    # a table as rpm makes it: whatever else has its name could have programs of its own
    made = database.execute("SELECT sql FROM sqlite_master WHERE name = 'Packages'").fetchall()
    if len(made) != 1 or not TABLE.fullmatch(str(made[0][0])):
        raise MalformedError("it has no table of packages as rpm makes it")
    for (blob,) in database.execute("SELECT blob FROM Packages ORDER BY hnum"):
        header = stored(bytes(blob))
        if (name := header.text(NAME)) != KEY:
            yield InstalledRpm(name, _version(header), header.text(SOURCE_RPM))


def _version(header: Header) -> str:
    epoch = header.number(EPOCH) if EPOCH in header.tags else 0
    return f"{f'{epoch}:' if epoch else ''}{header.text(VERSION)}-{header.text(RELEASE)}"
