"""Way back from a backup: what is sealed onto a bare controller, the database onto its master, and the drill."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from appliance.site.alone import Alone
from appliance.site.backup import database, sealing, signature
from appliance.site.backup.catalogue import Catalogue, Record
from appliance.site.backup.make import Backups
from appliance.site.backup.secrets import MASTER, Places, put_back
from common.errors import ConflictError


@dataclass(frozen=True)
class Restored:
    """What came of a restore or a drill: how old what came back is, and how long that took, both in seconds.

    `kept` is the name that the database before has now, if there was work in it.
    """

    record: Record
    point_s: float
    seconds: float
    kept: str = ""


def restore(
    backups: Backups,
    name: str | None,
    source: Path,
    *,
    replace: bool,
    unsigned: bool = False,
    held: Alone | None = None,
) -> Restored:
    """Put the database of a backup in the place of the master's; `replace` allows that where there is work in it.

    `unsigned` takes one whoever made it.
    """
    record = _chosen(backups, name, source, unsigned=unsigned)
    begin = time.monotonic()
    Catalogue(source).require_whole(record, record.dump)
    now = backups.clock()
    unsealed = backups.places.state / MASTER
    done = database.restore(
        backups.site,
        source,
        record,
        kept=f"penstock_before_{now:%Y%m%d%H%M%S}" if replace else "",
        master=unsealed if unsealed.is_file() else None,
        state=backups.places.state,
        listen=backups.listen,
        held=held,
    )
    unsealed.unlink(missing_ok=True)
    return Restored(record, (now - record.moment).total_seconds(), round(time.monotonic() - begin, 1), done["kept"])


def drill(
    backups: Backups, name: str | None, source: Path, *, unsigned: bool = False, held: Alone | None = None
) -> Restored:
    """Do what a restore does up to the database itself, into a scratch database; changes nothing."""
    record = _chosen(backups, name, source, unsigned=unsigned)
    begin = time.monotonic()
    Catalogue(source).require_whole(record, record.dump)
    how = {"state": backups.places.state, "listen": backups.listen, "held": held}
    database.check(backups.site, source, record, **how)
    point = (backups.clock() - record.moment).total_seconds()
    return Restored(record, point, round(time.monotonic() - begin, 1))


def unseal(name: str | None, source: Path, identity: Path, by: str, places: Places | None = None) -> tuple[Record, int]:
    """Put authority, keys and state of a site onto a machine that has none; returns the backup and how many files.

    `by` is who may have made it, as `signature.chosen` takes it.
    """
    places = places or Places()
    record = signature.chosen(source, name, by)
    if not record.sealed:
        raise ConflictError(
            "nothing is sealed in this backup",
            where=record.name,
            hint="the site file had no `backup.recipient`; without the authority the site has to be deployed anew",
        )
    Catalogue(source).require_whole(record, record.seal)
    places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with sealing.opened(source / record.seal, identity, places.state, record.files[record.seal][1]) as archive:
        return record, put_back(archive, places, master=places.state / MASTER)


def _chosen(backups: Backups, name: str | None, source: Path, *, unsigned: bool) -> Record:
    """Return a backup that this site made; where root alone writes, one of a release that signed none, too."""
    if unsigned:
        return Catalogue(source).choose(name)
    if source != backups.folder:
        return signature.chosen(source, name, signature.signer(backups.places))
    record = Catalogue(source).choose(name)
    signature.require_own(source, record, backups.places)
    return record
