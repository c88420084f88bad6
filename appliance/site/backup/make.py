"""Making of a backup: the database is dumped, loaded and counted on the master, and beside it secrets are sealed."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from appliance.site import playbook
from appliance.site.alone import Alone
from appliance.site.backup import database, sealing, signature
from appliance.site.backup.catalogue import DUMP, MOST, SEALED, Catalogue, Record, described, hash_of, under_way
from appliance.site.backup.secrets import MASTER, Places, members
from appliance.site.model import Site
from common import files, process
from common.errors import ConflictError, IntegrityError, NotFoundError, PenstockError, ProcessError, UnavailableError

FOLDER = Path("/var/lib/penstock/backup")
ANSWERS_S = 60.0
"""So long the file system of the second place may take to say anything."""
LOOK_S = 30.0
"""So often it is asked while files are copied there."""


@dataclass(frozen=True)
class Backups:
    """The backups of a site on its controller, and who hears how long work goes on."""

    site: Site
    listen: playbook.Listener
    folder: Path = FOLDER
    places: Places = field(default_factory=Places)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def catalogue(self) -> Catalogue:
        """What there is."""
        return Catalogue(self.folder)

    @property
    def second(self) -> Catalogue | None:
        """What there is in the second place, where several sites may have theirs."""
        folder = self.site.backup.copy_to
        return Catalogue(Path(folder) / self.site.name) if folder else None

    def take(self, held: Alone | None = None) -> Record:
        """Take a backup and let old ones go; raises what went wrong, of which the record of a failed one tells.

        A master without a database has nothing to copy: NotFoundError. One of this second: ConflictError.
        """
        now = self.clock()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.catalogue.sweep()
        record = Record(f"penstock-{now:%Y%m%d-%H%M%S}", f"{now:%FT%TZ}", self.site.name, version("penstock"))
        record.number = self._next_number(record.name)
        try:
            self._make(record, held)
            record.verified = f"{self.clock():%FT%TZ}"
            self.catalogue.write(record)
        except BaseException as error:
            self._fail(record, error)
            raise
        self._copy(record)
        self._archive(record, held)
        for place in self._everywhere():
            place.prune(self.site.backup.keep, self.site.backup.keep_days, now)
            place.sweep()
        return record

    def verify(self, name: str | None, identity: Path | None, held: Alone | None = None) -> Record:
        """Check the files of a backup, load and count its dump again, and open what is sealed with a key, if given.

        One that is named is looked at whatever it was before, and good again when all is well.
        """
        record = self.catalogue.find(name) if name else self.catalogue.choose(None)
        if not record.files:
            record = self.catalogue.choose(name)
        # is it the key that changed, nothing is wrong with the backup
        signature.require_own(self.folder, record, self.places)
        try:
            self.catalogue.require_whole(record, *record.needed)
            if identity and record.sealed:
                sha256 = record.files[record.seal][1]
                with sealing.opened(self.folder / record.seal, identity, self.folder, sha256) as archive:
                    archive.getmembers()
            database.check(self.site, self.folder, record, **self._how(held))
        except IntegrityError as error:
            record.problem = str(error.problems[0])
            self.catalogue.write(record)
            raise
        record.verified, record.problem = f"{self.clock():%FT%TZ}", ""
        self._mend_plain(record)
        self.catalogue.write(record)
        if self.second and record.copied:
            require_answer(self.second.folder)
            self.second.require_whole(record, *record.needed)
        return record

    def _mend_plain(self, record: Record) -> None:
        """Make the dump that is not compressed again where it is damaged: no restore needs it."""
        if record.plain in record.files and not self.catalogue.is_whole(record.plain, *record.files[record.plain]):
            _unpack(self.folder / record.dump, self.folder / record.plain)
            record.remade = record.verified

    def _next_number(self, name: str) -> int:
        """Return the number of a new backup: it is the newest, whatever moments a clock that was ahead gave others.

        After a rebuild the second place alone has those from before.
        """
        if any(record.good and record.name == name for record in self.catalogue.records()):
            raise ConflictError(f"there is a backup {name}", where=str(self.folder), hint="try again in a second")
        known = [record for place in self._everywhere() for record in place.records()]
        return min(max((record.number for record in known), default=0) + 1, MOST)

    def _make(self, record: Record, held: Alone | None) -> None:
        dump, plain = self.folder / record.dump, self.folder / record.plain
        # made before anything is sealed: a site that comes back signs with it
        key = signature.own_key(self.places)
        with TemporaryDirectory(dir=self.folder, prefix=f"{record.name}.") as scratch, under_way(Path(scratch)):
            local = Path(scratch) / MASTER
            made = database.make(self.site, dump, local, **self._how(held))
            if not made["present"]:
                raise NotFoundError(
                    "the master has no database", where=self.site.master.name, hint="run `penstock site deploy` first"
                )
            record.time, record.schema = made["moment"], made["schema"]
            record.tables, record.seconds = made["tables"], made["seconds"]
            dump.chmod(0o600)
            record.files[dump.name] = (made["size"], made["sha256"])
            self.catalogue.require_whole(record)
            _unpack(dump, plain)
            record.files[plain.name] = (made["plain_size"], made["plain_sha256"])
            self.catalogue.require_whole(record, plain.name)
            if recipient := self.site.backup.recipient:
                sealed = self.folder / record.seal
                sealing.seal([(local, MASTER), *members(self.places, Path(scratch))], recipient, sealed)
                record.files[sealed.name] = described(sealed)
                record.sealed = True
        signature.sign(record, key)

    def _fail(self, record: Record, error: BaseException) -> None:
        """Keep why there is no backup, and nothing else of it."""
        self.catalogue.remove(record.name)
        problem = error.problems[0] if isinstance(error, PenstockError) else None
        record.problem = str(problem or error or type(error).__name__)
        record.files, record.sealed, record.verified, record.signature = {}, False, "", ""
        try:
            self.catalogue.write(record)
            self.catalogue.prune_failed(self.site.backup.keep)
        except OSError:
            return  # a disk without room has none for this either: then the backup is late, which is told, too

    def _copy(self, record: Record) -> None:
        """Copy a good backup to the second place; a copy that fails takes nothing from the backup."""
        if self.second is None:
            return
        wanted = [name for name in record.files if name.endswith((DUMP, SEALED))]
        try:
            parent = self.second.folder.parent
            require_answer(parent)
            if not parent.is_dir():
                raise UnavailableError(f"{parent} is not there")
            while_it_answers(parent, partial(self._fill, self.second, record, wanted))
        except (OSError, PenstockError) as error:
            record.copied, record.apart = "", False
            record.uncopied = str(error)
        self.catalogue.write(record)

    def _fill(self, second: Catalogue, record: Record, wanted: Sequence[str]) -> None:
        second.folder.mkdir(mode=0o700, exist_ok=True)
        second.sweep()
        for name in wanted:
            _copy(self.folder / name, second.folder / name)
            if hash_of(second.folder / name) != record.files[name][1]:
                raise IntegrityError(f"the copy of {name} is not what was copied")
        apart, copied = second.folder.stat().st_dev != self.folder.stat().st_dev, str(second.folder)
        told = {"apart": apart, "copied": copied, "files": {name: record.files[name] for name in wanted}}
        second.write(Record(**{**vars(record), **told}))
        record.apart, record.copied = apart, copied

    def _archive(self, record: Record, held: Alone | None) -> None:
        """Take a full backup beside the archive of the database's log; one that fails takes nothing from the dump."""
        if self.site.backup.wal_to is None:
            return
        try:
            record.archived = database.archive(self.site, "archive", {}, **self._how(held))["backup"]
        except PenstockError as error:
            record.unarchived = str(error.problems[0])
        self.catalogue.write(record)

    def _everywhere(self) -> list[Catalogue]:
        second = self.second
        if second is not None:
            try:
                require_answer(second.folder.parent)
            except UnavailableError:
                # the copy says so: what is known here makes a backup all the same
                second = None
        return [self.catalogue, *([second] if second and second.folder.is_dir() else [])]

    def _how(self, held: Alone | None) -> dict[str, object]:
        return {"state": self.places.state, "listen": self.listen, "held": held}


def require_answer(folder: Path) -> None:
    """Raise UnavailableError where the file system of a folder hangs, as a hard mount of a server that is gone does."""
    try:
        # in a program of its own, which can be ended; one that says no answers, too
        process.run(("stat", "--file-system", folder), accepted=(0, 1), timeout_s=ANSWERS_S)
    except ProcessError as error:
        raise UnavailableError(
            f"{folder} does not answer: nothing came of it in {ANSWERS_S:g} s",
            where=str(folder),
            hint="look at its mount and at the server behind it",
        ) from error


def while_it_answers(folder: Path, work: Callable[[], None]) -> None:
    """Work in a folder; raises what the work raised, and UnavailableError as soon as the file system hangs.

    The work waits on then, and ends with this process: a kernel lets nobody go who waits for such a folder.
    """
    failed: list[BaseException] = []

    def done() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    # one that is waited for at the end would keep the process, and with it the lock of deploys
    thread = threading.Thread(target=done, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK_S)
        if thread.is_alive():
            require_answer(folder)
    if failed:
        raise failed[0]


def _unpack(packed: Path, plain: Path) -> None:
    with gzip.open(packed) as source, plain.open("wb") as target:
        plain.chmod(0o600)
        shutil.copyfileobj(source, target, 1 << 20)


def _copy(source: Path, target: Path) -> None:
    # others write beside it: a name that they made a link leads nowhere
    with (
        source.open("rb") as reading,
        NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}{files.BESIDE}", delete=False) as beside,
    ):
        shutil.copyfileobj(reading, beside, 1 << 20)
        beside.flush()
        os.fsync(beside.fileno())
    Path(beside.name).replace(target)
