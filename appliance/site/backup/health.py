"""Health of a site's backups: late, failed, without keys, without a second place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from appliance.site.backup import make
from appliance.site.backup.catalogue import Catalogue, Record
from appliance.site.model import Site
from common.backup_protocol import LATE
from common.checks import Check, CheckState
from common.errors import UnavailableError

CLOCK = "put the clocks of reservoir node and master right; the backups after it let it go in time"
BEFORE = "it was taken before"
SINCE = "since"
"""The file that the first deploy writes into the folder, and nothing after it: then there might have been a backup."""


def judged(site: Site, folder: Path, now: datetime) -> list[Check]:
    """Judge the backups of a site in a folder, which the first deploy has made."""
    records = Catalogue(folder).tries()
    if (newest := next((record for record in records if record.good), None)) and newest.copied:
        _look_at_copy(newest)
    return list(checks(site, records, _beginning(folder, records, now), now))


def _look_at_copy(record: Record) -> None:
    """Say of a backup that its copy is not where it was made, if so."""
    copy = Catalogue(Path(record.copied))
    try:
        # who looks into a folder that hangs gives no more sign of life, and the controller would be ended for that
        make.require_answer(copy.folder)
    except UnavailableError as error:
        record.copied, record.uncopied = "", error.problems[0].reason
        return
    if not copy.has(record):
        record.copied, record.uncopied = "", f"its copy is not in {copy.folder} any more"


def _beginning(folder: Path, records: Sequence[Record], now: datetime) -> datetime:
    """Return when there might have been the first; each try that fails changes the folder anew."""
    if not folder.is_dir():
        return now
    first = folder / SINCE
    made = datetime.fromtimestamp((first if first.exists() else folder).stat().st_mtime, UTC)
    return min([made, *(record.moment for record in records)])


def checks(site: Site, records: Sequence[Record], since: datetime, now: datetime) -> Iterator[Check]:
    """Judge the backups, the newest first; `since` is when there might have been the first."""
    settings, node = site.backup, site.reservoir.name
    again = f"run `penstock backup now` on {node}"
    ahead = [record for record in records if record.is_ahead(now)]
    past = [record for record in records if record not in ahead]
    good = [record for record in past if record.good]
    hint = CLOCK if ahead else f"look at `journalctl -u 'penstock-backup*'` on {node}, then {again}"
    yield _age(past, good, ahead, late=now - (good[0].moment if good else since) > LATE, hint=hint)
    if not good:
        return
    newest = good[0]
    yield _check(
        "backup.sealed",
        "authority and keys are in the backup",
        warn=not newest.sealed,
        evidence=f"{newest.name}: authority and keys are {'' if newest.sealed else 'not '}in it",
        hint="run `penstock backup key`, and write the key that it prints as `backup.recipient` into the site file",
    )
    if settings.copy_to is None:
        said, hint = "the site names no second place", "name a folder of another machine as `backup.copy_to`"
    elif not newest.copied:
        said, hint = (
            newest.uncopied or f"{BEFORE} `backup.copy_to` was set",
            f"look at {settings.copy_to}, then {again}",
        )
    elif not newest.apart:
        said, hint = f"{newest.copied} is on the same disk", "is it mounted? name a folder of another disk or machine"
    else:
        said, hint = "", ""
    evidence = f"{newest.name}: {said or newest.copied}"
    yield _check("backup.copy", "backup is in a second place", warn=bool(said), evidence=evidence, hint=hint)
    if settings.wal_to is not None:
        said = newest.archived or newest.unarchived or f"{BEFORE} `backup.wal_to` was set"
        yield _check(
            "backup.wal",
            "archive of the database's log has a backup to begin with",
            warn=not newest.archived,
            evidence=f"{newest.name}: {said}",
            hint=f"look at {settings.wal_to} and PostgreSQL's log on {site.master.name}, then {again}",
        )


def _age(records: Sequence[Record], good: Sequence[Record], ahead: Sequence[Record], *, late: bool, hint: str) -> Check:
    last = records[0] if records else None
    failed = f"; {last.name}: {last.problem or 'it was not loaded'}" if last and not last.good else ""
    newest = f"the last good backup is {good[0].name}" if good else "there is no good backup"
    to_come = f"; {ahead[0].name} is of a moment that is still to come" if ahead else ""
    state = CheckState.FAIL if late else CheckState.OK if good and not failed + to_come else CheckState.WARN
    said = f"{newest}{failed}{to_come}"
    name = "backup of the last day gives back what was there"
    return Check("backup.age", name, state, said, "" if state is CheckState.OK else hint)


def _check(identity: str, name: str, *, warn: bool, evidence: str, hint: str) -> Check:
    return Check(identity, name, CheckState.WARN if warn else CheckState.OK, evidence, hint if warn else "")
