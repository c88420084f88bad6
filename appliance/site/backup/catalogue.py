"""Catalogue of a folder with backups: their records, their files, and which may go.

The record of a backup is written last. Files without one are what an interruption left, and go before the next backup.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import TypeAdapter

from common import files
from common.errors import ConflictError, IntegrityError, NotFoundError, Problem
from reservoir.signing import ed25519

NAME = re.compile(r"penstock-\d{8}-\d{6}")
PLAIN, DUMP, SEALED, RECORD = ".sql", ".sql.gz", ".tar.age", ".json"
FEW = 3
"""So many good backups stay however old they are: a clock that is ahead makes all of them old at once."""

LONGEST = 16 << 20
"""Bytes of a record; one of ten thousand tables is shorter."""
MOST = 10**12
"""The highest number of a backup; no site takes so many."""
STEP = timedelta(minutes=5)
"""So far may the clocks of reservoir node and master be from each other without a word."""


@dataclass
class Record:
    """What is known of one backup.

    `number` grows from one to the next, whatever clocks say; those of earlier releases have none.
    `time` is the moment of the database that it has, `tables` the rows of each table then. `files` are size and hash by
    name. It was `verified` when its dump was last loaded and counted. `copied` is the folder of its copy, `apart`
    says whether that is another disk; `uncopied` why there is none. `remade` is when its dump
    that is not compressed was found damaged. `archived` is the full backup that was taken with it beside the archive of
    the database's log; `unarchived` why there is none. `problem` says why it is not good. `signature` is the site's, in
    base64, over what the files have; those of earlier releases have none.
    """

    name: str
    time: str
    site: str = ""
    version: str = ""
    schema: str = ""
    tables: dict[str, int] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    sealed: bool = False
    verified: str = ""
    remade: str = ""
    copied: str = ""
    apart: bool = False
    uncopied: str = ""
    archived: str = ""
    unarchived: str = ""
    problem: str = ""
    number: int = 0
    signature: str = ""

    @property
    def good(self) -> bool:
        """Say whether its dump gave back what was in the database."""
        return bool(self.verified) and not self.problem

    @property
    def moment(self) -> datetime:
        """The moment that it has."""
        return datetime.fromisoformat(self.time)

    @property
    def size(self) -> int:
        """How many bytes it has, without its dump that is not compressed."""
        return sum(size for name, (size, _) in self.files.items() if not name.endswith(PLAIN))

    def is_ahead(self, now: datetime) -> bool:
        """Say whether its moment, or the one in its name, is still to come: a clock was wrong."""
        named = datetime.fromisoformat(_written(self.name))
        return max(self.moment, named) > now + STEP

    @property
    def plain(self) -> str:
        """The name of its dump that is not compressed."""
        return f"{self.name}{PLAIN}"

    @property
    def needed(self) -> list[str]:
        """The names of the files that a restore needs."""
        return [self.dump, *([self.seal] if self.sealed else [])]

    @property
    def dump(self) -> str:
        """The name of its compressed dump."""
        return f"{self.name}{DUMP}"

    @property
    def seal(self) -> str:
        """The name of what is sealed of it."""
        return f"{self.name}{SEALED}"


_RECORDS = TypeAdapter(Record)


class Catalogue:
    """The backups in a folder."""

    def __init__(self, folder: Path) -> None:
        """Take note of the folder."""
        self.folder = folder

    def records(self) -> list[Record]:
        """Return what is known of all backups, the one taken last first; an unreadable record is of none."""
        found = []
        for path in self.folder.glob(f"penstock-*{RECORD}"):
            if not NAME.fullmatch(path.stem):
                continue
            try:
                found.append(_read(path))
            except (ValueError, TypeError, AttributeError, OSError, IntegrityError):
                found.append(Record(path.stem, _written(path.stem), problem="its record is damaged"))
        return sorted(found, key=lambda record: (record.number, record.name), reverse=True)

    def tries(self) -> list[Record]:
        """Return all backups, before them one that was broken off, of which its folder alone tells."""
        folders = (path for path in self.folder.glob("penstock-*.*/") if NAME.fullmatch(path.stem))
        left = sorted((path for path in folders if not _is_under_way(path)), reverse=True)
        problem = "it was broken off: its process was ended, or the machine went down"
        return [*(Record(path.stem, _written(path.stem), problem=problem) for path in left), *self.records()]

    def choose(self, name: str | None) -> Record:
        """Return a backup by its name, or the newest good one; raises NotFoundError or ConflictError without one."""
        if name is None:
            if newest := next((each for each in self.records() if each.good), None):
                return newest
            raise NotFoundError("there is no good backup", where=str(self.folder), hint="run `penstock backup now`")
        found = self.find(name)
        if not found.good:
            again = f"put it right and run `penstock backup verify {name}`, or " if found.files else ""
            reason = f"the backup is not good: {found.problem or 'it was never loaded'}"
            raise ConflictError(reason, where=name, hint=f"{again}take another one")
        return found

    def find(self, name: str) -> Record:
        """Return a backup by its name, good or not; raises NotFoundError."""
        found = next((each for each in self.records() if each.name == name), None)
        if found is None:
            raise NotFoundError(
                f"there is no backup {name}", where=str(self.folder), hint="`penstock backup list` has their names"
            )
        return found

    def has(self, record: Record) -> bool:
        """Return whether a backup's record and dump are here; a folder that cannot be read has none."""
        try:
            return all((self.folder / name).is_file() for name in (f"{record.name}{RECORD}", record.dump))
        except OSError:
            return False

    def write(self, record: Record) -> None:
        """Keep what is known of a backup; its files are on the disk by then, unless one was lost."""
        for name in record.files:
            with suppress(FileNotFoundError):
                flush(self.folder / name)
        files.write(self.folder / f"{record.name}{RECORD}", json.dumps(asdict(record), indent=1) + "\n", 0o600)
        flush(self.folder)

    def require_whole(self, record: Record, *names: str) -> None:
        """Raise IntegrityError that names each file of a backup that is not as it was written; all, or those named."""
        wrong = [
            Problem(str(self.folder / name), reason, "take it from the other place, or use another backup")
            for name in names or record.files
            if (reason := self._fault(name, *record.files[name]))
        ]
        if wrong:
            raise IntegrityError.of(wrong)

    def is_whole(self, name: str, size: int, sha256: str) -> bool:
        """Return whether a file is as it was written."""
        return not self._fault(name, size, sha256)

    def sweep(self) -> None:
        """Remove what belongs to no backup, and of all but the newest the dump that is not compressed."""
        files.sweep(self.folder)
        known = self.records()
        names = {record.name for record in known}
        newest = next((record.name for record in known if record.good), "")
        for path in self.folder.iterdir():
            if not (name := NAME.match(path.name)):
                continue
            if name[0] not in names:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            elif path.suffix == PLAIN and name[0] != newest:
                self._forget_plain(path, next(record for record in known if record.name == name[0]))

    def prune(self, keep: int, days: int, now: datetime) -> list[str]:
        """Remove the backups that may go, and return their names."""
        gone = [record.name for record in superfluous(self.records(), keep, days, now)]
        for name in gone:
            self.remove(name)
        return gone

    def prune_failed(self, keep: int) -> None:
        """Remove what is known of failed ones but the newest; no good one goes."""
        for record in [each for each in self.records() if not each.good][keep:]:
            self.remove(record.name)

    def remove(self, name: str) -> None:
        """Remove a backup, its record first: what is left without it is no backup."""
        for ending in (RECORD, PLAIN, DUMP, SEALED):
            (self.folder / f"{name}{ending}").unlink(missing_ok=True)

    def _forget_plain(self, path: Path, record: Record) -> None:
        record.files.pop(path.name, None)
        if record.files:
            self.write(record)
        path.unlink()

    def _fault(self, name: str, size: int, sha256: str) -> str:
        """Return what is wrong with a file; empty where it is as it was written."""
        try:
            found = (self.folder / name).stat().st_size
            if found != size:
                return f"it has {found} bytes instead of {size}"
            return "" if hash_of(self.folder / name) == sha256 else "it was altered: its hash is another one"
        except OSError as error:
            return f"it cannot be read: {error.strerror}"


def superfluous(records: Sequence[Record], keep: int, days: int, now: datetime) -> list[Record]:
    """Return those of the backups, the newest first, that may go: of the first few good ones none by its age."""
    good = [record for record in records if record.good]
    failed = [record for record in records if not record.good]
    old = timedelta(days=days)
    return [
        record
        for same in (good, failed)
        for index, record in enumerate(same)
        if index >= keep or (now - record.moment > old and not (record.good and index < FEW))
    ]


def _read(path: Path) -> Record:
    """Return a record; raises ValueError for one that no backup has.

    Others may write where the copies are: what they write there names nothing elsewhere.
    """
    record = _RECORDS.validate_json(ed25519.carried(path, LONGEST))
    own = {f"{path.stem}{ending}" for ending in (PLAIN, DUMP, SEALED)}
    is_own = record.name == path.stem and own >= record.files.keys() and 0 <= record.number <= MOST
    if not is_own or record.moment.tzinfo is None:
        raise ValueError(f"it is not the record of {path.stem}")
    return record


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb", opener=_at_once) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def described(path: Path) -> tuple[int, str]:
    """Return size and hash of a file."""
    return path.stat().st_size, hash_of(path)


@contextmanager
def under_way(folder: Path) -> Iterator[None]:
    """Hold the folder of a backup that is made: one that nobody holds was broken off."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_under_way(folder: Path) -> bool:
    """Return whether somebody makes a backup in a folder; one that is gone by now is done with."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = _at_once(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _at_once(path: str | Path, flags: int) -> int:
    """Open a file; a pipe that others put in its place has nothing in it, and nobody waits for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def _written(name: str) -> str:
    """Return the moment in the name of a backup; the beginning of time for any other name."""
    try:
        return f"{datetime.strptime(f'{name}+0000', 'penstock-%Y%m%d-%H%M%S%z'):%FT%TZ}"
    except ValueError:
        return "1970-01-01T00:00:00Z"
