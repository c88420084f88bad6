"""Rules of the audit log: what is kept, who reads it, and how its files go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.database import Database
from api.resources.audit import chain, lines, repository, retention
from api.resources.audit.chain import Entry, Head, Verification
from api.resources.audit.log_files import LogFiles
from api.settings import Settings
from common.errors import ConflictError, NotFoundError, UnavailableError
from common.sentence import Sentence
from common.settings.audit import AuditSettings

AT_ONCE = 500
"""Entries that are written together at most."""
MAX_TEXT = 256
"""Characters of a text of an entry: whoever sends a long one fills no log with it."""
LOOKED_AT = 200_000
"""So many lines a page is looked for in at most: a search that finds little ends all the same."""
OWN = "this site's database"
"""Who has seen how far the log went, beside the nodes."""

head = repository.head
sent = repository.sent
note_sent = repository.note_sent
set_status = repository.set_status
fault = repository.fault
note_fault = repository.note_fault


def is_on(settings: Settings) -> bool:
    """Return whether this API keeps an audit log."""
    return settings.audit_folder is not None


def log_of(settings: Settings) -> LogFiles | None:
    """Return the files of the log; None where none is kept. Raises UnavailableError where the key cannot be read."""
    if settings.audit_folder is None or settings.audit_key is None:
        return None
    try:
        key = settings.audit_key.read_bytes().strip()
    except OSError as error:
        raise UnavailableError(
            f"the key of the audit log cannot be read: {error.strerror}",
            where=str(settings.audit_key),
            hint="deploy the site: it brings the key",
        ) from error
    if not key:
        raise UnavailableError(
            "the key of the audit log is empty: anybody could seal lines with it",
            where=str(settings.audit_key),
            hint="deploy the site: it brings the key",
        )
    return LogFiles(settings.audit_folder, key)


async def add(db: AsyncSession, entry: Mapping[str, Any], *, changes: bool) -> None:
    """Put an entry where it cannot get lost: it is in the log with this transaction, or neither is."""
    await repository.add(db, storable(entry), now(), changes=changes)


async def begin(db: AsyncSession, entry: Mapping[str, Any]) -> None:
    """Open a transaction with its entry, which tells what it changes from then on."""
    await repository.begin(db, storable(entry))


def storable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose texts a database takes, and which is not longer than a line may be."""
    return {key: _storable(value) if isinstance(value, str) else value for key, value in entry.items()}


def _storable(text: str) -> str:
    """Return a text as a database takes it, and not longer than a line may be: an attempt is told whatever it says."""
    short = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    return short.replace("\0", "\\0").encode(errors="backslashreplace").decode()


async def write(db: AsyncSession, log: LogFiles) -> bool:
    """Write the oldest entries into the files; returns whether there may be more. Only the leader does so.

    The files that an entry deletes go when its line is on the disk, and it stays until they have: a crash in between
    leaves no file out, and none goes without a line.
    """
    waiting = await repository.pending(db, AT_ONCE, lines.CHANGES)
    if not waiting:
        return False
    at = now()
    expected = await repository.head(db)
    entries = lines.first_of([(one.id, lines.whole(one)) for one in waiting])
    last = await asyncio.to_thread(log.append, entries, at, expected)
    for _, entry in entries:
        for day in entry.get("files", ()):
            await asyncio.to_thread(log.delete, day)
    await repository.written(db, waiting[: len(entries)], last, at)
    for _, entry in entries:
        if said := chain.said_of(entry.get("deleted") or {}):
            await repository.note_fault(db, f"{entry['deleted']['day']}.log: {said}", at)
    return len(waiting) == AT_ONCE or len(entries) < len(waiting)


async def expire(database: Database, log: LogFiles, settings: AuditSettings, at: datetime) -> None:
    """Let the files go that are too old or too large together, when the log says so and which lines they had.

    Nothing goes that a syslog server has not got yet.
    """
    gone = retention.expired(await asyncio.to_thread(log.days), at.date(), settings)
    if gone and settings.audit_syslog:
        async with database.reading() as db:
            known = (await repository.sent(db)).seq
        gone = [day for day in gone if await asyncio.to_thread(log.last_of, day) <= known]
    if not gone:
        return
    extents = [await asyncio.to_thread(log.extent, day) for day in gone]
    async with database.transaction() as db:
        await repository.add(db, retention.deletion(extents, f"{at:%FT%T.%fZ}"), at, changes=False)


@dataclass(frozen=True)
class Search:
    """What entries are looked for; None is any. `action` is a name such as `project_members`, times are UTC."""

    user: str | None = None
    object: str | None = None
    project: str | None = None
    action: str | None = None
    result: str | None = None
    node: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def finds(self, entry: Entry) -> bool:
        """Return whether an entry is one of these."""
        path = entry["object"]
        return (
            (self.user is None or entry["user"] == self.user)
            and (self.object is None or self._touches(entry))
            and (self.project is None or self.project in (entry["project"], _project(path)))
            and (self.action is None or entry["action"] == self.action)
            and (self.result is None or entry["result"] == self.result)
            and (self.node is None or self.node in lines.nodes_of(entry))
            and (self.since is None or entry["time"] >= f"{self.since:%FT%T.%fZ}")
            and (self.until is None or entry["time"] < f"{self.until:%FT%T.%fZ}")
        )

    def _touches(self, entry: Entry) -> bool:
        """Return whether an entry is about the object: itself, what it stands for, or by a change of it, which who
        asked may have named by its id.
        """
        paths = (entry["object"], *entry.get("objects", ()))
        return any(f"{path}/".startswith(f"{self.object}/") for path in paths) or any(
            f"{one['kind']}/{one['subject'].get('name')}" == self.object for one in entry["changes"]
        )


def _project(path: str) -> str | None:
    kind, _, rest = path.partition("/")
    return rest.partition("/")[0] if kind == "projects" else None


async def search(
    log: LogFiles, search: Search, caller: Identity, *, limit: int, before: int | None
) -> tuple[list[Entry], int | None]:
    """Return entries that the caller may see, newest first, and the number before which the next page begins."""
    return await asyncio.to_thread(_search, log, search, caller, limit, before)


def _search(
    log: LogFiles, search: Search, caller: Identity, limit: int, before: int | None
) -> tuple[list[Entry], int | None]:
    reach = caller.reach(Action.AUDIT_READ)
    earliest = f"{search.since:%Y%m%d}" if search.since else ""
    found: list[Entry] = []
    for looked_at, entry in enumerate(log.newest_first(before), 1):
        if entry["day"] < earliest:
            break
        seen = entry if reach.everything else _of_domain(entry, reach.domain)
        if seen and search.finds(seen):
            found.append(seen)
        if len(found) == limit or looked_at == LOOKED_AT:
            return found, entry["seq"]
    return found, None


def _of_domain(entry: Entry, domain: str | None) -> Entry | None:
    """Return of an entry what concerns a domain; None where nothing does."""
    if domain not in entry["domains"]:
        return None
    changes = [own for change in entry["changes"] if (own := _change_of_domain(change, domain))]
    seen = {**entry, "domains": [domain], "changes": changes}
    if entry["changes"]:
        seen["nodes"] = []
    return {**seen, "nodes": lines.nodes_of(seen)}


def _change_of_domain(change: Mapping[str, Any], domain: str | None) -> Mapping[str, Any] | None:
    """Return a change as a domain sees it; None where it is another one's.

    Of what comes from another domain or goes to one, each sees its own side: what came to be, or what was.
    """
    before, after = change["before"] or {}, change["after"] or {}
    if before.get("domain") == after.get("domain"):
        present = change["subject"].get("name" if change["kind"] == "domains" else "domain")
        return change if present == domain else None
    own = {side: change[side] for side in ("before", "after") if (change[side] or {}).get("domain") == domain}
    subject = {**change["subject"], "domain": domain}
    return {**change, "subject": subject, "before": None, "after": None, **own} if own else None


async def verify(db: AsyncSession, log: LogFiles, seen: Mapping[str, Sequence[Head]]) -> Verification:
    """Say whether every line is as it was written, and in its place, up to what others have seen, by who."""
    heads = {**seen, OWN: [await repository.head(db)]}
    return await asyncio.to_thread(log.verify, heads)


def require_day(log: LogFiles, day: str) -> None:
    """Raise NotFoundError where there is no file of a day."""
    if all(one.day != day for one in log.days()):
        raise NotFoundError(
            Sentence("there is no file {day}.log", day=day),
            where="day",
            hint=Sentence("list the files of the audit log"),
        )


async def seal_deletion(log: LogFiles, day: str) -> dict[str, Any]:
    """Return what the line of a deletion tells beside who asked for it: which file goes, and what the log says of it.

    Raises ConflictError for the file that is being written, NotFoundError for one that there is not.
    """
    require_day(log, day)
    if day == log.days()[-1].day:
        raise ConflictError(
            Sentence("{day}.log is still being written", day=day),
            where="day",
            hint=Sentence("delete it when its day is over"),
        )
    return {"deleted": await asyncio.to_thread(log.extent, day), "files": [day]}
