"""Rules of the audit log: what is kept, who reads it, and how its files go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.resources.audit import repository
from api.resources.audit.chain import Entry, Verification
from api.resources.audit.log_files import LogFiles
from api.resources.audit.repository import Pending
from api.settings import Settings
from common.errors import ConflictError, NotFoundError, UnavailableError

AT_ONCE = 500
"""Entries that are written together."""
CHANGES = 100
"""So many changes of one request are told; of the others that there are more."""
LOOKED_AT = 200_000
"""So many lines a page is looked for in at most: a search that finds little ends all the same."""
OWN = "this site's database"
"""Who has seen how far the log went, beside the nodes."""

begin = repository.begin


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
    return LogFiles(settings.audit_folder, key)


async def add(db: AsyncSession, entry: Mapping[str, Any], *, changes: bool) -> None:
    """Put an entry where it cannot get lost: it is in the log with this transaction, or neither is."""
    await repository.add(db, entry, now(), changes=changes)


async def write(db: AsyncSession, log: LogFiles) -> bool:
    """Write the oldest entries into the files; returns whether there may be more. Only the leader does so."""
    waiting = await repository.pending(db, AT_ONCE, CHANGES)
    if not waiting:
        return False
    at = now()
    expected = await repository.head(db)
    head = await asyncio.to_thread(log.append, [(one.id, _whole(one)) for one in waiting], at, expected)
    await repository.written(db, waiting, head, at)
    return len(waiting) == AT_ONCE


def _whole(pending: Pending) -> Entry:
    """Return an entry with its changes, and with the object's name where only these tell it."""
    entry, told = pending.entry, pending.changes[:CHANGES]
    first = next((change for change in told if change["before"] is None), None)
    if first and entry["method"] == "POST" and "/" not in entry["object"] and first["subject"].get("name"):
        entry = {**entry, "object": f"{entry['object']}/{first['subject']['name']}"}
        entry["project"] = entry["project"] or first["subject"].get("project")
    domains = {change["subject"].get("domain") for change in told} | {entry.get("domain")}
    more = {"more_changes": True} if len(pending.changes) > CHANGES else {}
    return {**entry, "domains": sorted(filter(None, domains)), "changes": told, **more}


@dataclass(frozen=True)
class Search:
    """What entries are looked for; None is any. `action` is a name such as `project_members`, times are UTC."""

    user: str | None = None
    object: str | None = None
    project: str | None = None
    action: str | None = None
    result: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def finds(self, entry: Entry) -> bool:
        """Return whether an entry is one of these."""
        path = entry["object"]
        return (
            (self.user is None or entry["user"] == self.user)
            and (self.object is None or f"{path}/".startswith(f"{self.object}/") or self._changed(entry))
            and (self.project is None or self.project in (entry["project"], _project(path)))
            and (self.action is None or entry["action"] == self.action)
            and (self.result is None or entry["result"] == self.result)
            and (self.since is None or entry["time"] >= f"{self.since:%FT%T.%fZ}")
            and (self.until is None or entry["time"] < f"{self.until:%FT%T.%fZ}")
        )

    def _changed(self, entry: Entry) -> bool:
        """Return whether the object is among what was changed: who asked may have named it by its id."""
        return any(f"{one['kind']}/{one['subject'].get('name')}" == self.object for one in entry["changes"])


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
        if (reach.everything or reach.domain in entry["domains"]) and search.finds(entry):
            found.append(entry)
        if len(found) == limit or looked_at == LOOKED_AT:
            return found, entry["seq"]
    return found, None


async def verify(db: AsyncSession, log: LogFiles) -> Verification:
    """Say whether every line is as it was written, and in its place, up to what others have seen."""
    heads = {OWN: await repository.head(db)}
    return await asyncio.to_thread(log.verify, heads)


def require_day(log: LogFiles, day: str) -> None:
    """Raise NotFoundError where there is no file of a day."""
    if all(one.day != day for one in log.days()):
        raise NotFoundError(f"there is no file {day}.log", where="day", hint="list the files of the audit log")


async def seal_deletion(log: LogFiles, day: str) -> dict[str, Any]:
    """Return what the log says of a file that goes: its numbers, and the code of its last line.

    Raises ConflictError for the file that is being written, NotFoundError for one that there is not.
    """
    require_day(log, day)
    if day == log.days()[-1].day:
        raise ConflictError(f"{day}.log is still being written", where="day", hint="delete it when its day is over")
    extent = await asyncio.to_thread(log.extent, day)
    return extent or {"day": day, "first": 0, "last": -1, "mac": ""}
