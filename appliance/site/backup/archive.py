"""Archive of the database's log (WAL): full backups beside it, its window, and the way back to any moment in it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from appliance.site.alone import Alone
from appliance.site.backup import database
from appliance.site.backup.catalogue import Record
from appliance.site.backup.make import Backups
from appliance.site.backup.restore import Restored
from appliance.site.model import Site
from common.errors import ConflictError, InputError


@dataclass(frozen=True)
class Window:
    """From when to when the database comes back as at any moment."""

    begins: str
    ends: str


def window(backups: Backups, held: Alone | None = None) -> Window:
    """Ask the master; raises ConflictError where the site has no archive."""
    require(backups.site)
    told = database.archive(backups.site, "window", {}, **_how(backups, held))
    return Window(told["begins"], told["ends"])


def rewind(backups: Backups, to: datetime | None, *, replace: bool, held: Alone | None = None) -> Restored:
    """Put the database as at a moment, or at the end of the archive, in the place of the master's.

    `replace` allows that where there is work in it; the cluster before is kept in any case.
    """
    now = backups.clock()
    kept = f"before_{now:%Y%m%d%H%M%S}"
    return _go(backups, "rewind", to, {"kept": kept if replace else "", "cluster": kept}, held)


def rehearse(backups: Backups, to: datetime | None, held: Alone | None = None) -> Restored:
    """Do what a way back does up to the database itself, beside it; changes nothing."""
    return _go(backups, "rehearse", to, {}, held)


def require(site: Site) -> None:
    """Raise ConflictError where a site has no archive."""
    if site.backup.wal_to is None:
        raise ConflictError(
            "the site has no archive of the database's log",
            where="backup.wal_to",
            hint="name a folder of the master there, deploy, and run `penstock backup now`",
        )


def _go(backups: Backups, action: str, to: datetime | None, job: dict[str, Any], held: Alone | None) -> Restored:
    require(backups.site)
    now = backups.clock()
    if to and to > now:
        raise InputError("it is still to come", where=f"{to:%FT%TZ}", hint="name a moment before now")
    begin = time.monotonic()
    done = database.archive(backups.site, action, {"to": to.isoformat() if to else "", **job}, **_how(backups, held))
    record = Record(done["backup"], done["moment"], backups.site.name, tables=done["tables"])
    point = (now - record.moment).total_seconds()
    return Restored(record, point, round(time.monotonic() - begin, 1), done.get("kept", ""))


def _how(backups: Backups, held: Alone | None) -> dict[str, Any]:
    return {"state": backups.places.state, "listen": backups.listen, "held": held}
