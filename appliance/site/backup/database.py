"""The database of a site's master, by the playbook that dumps and loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from appliance.site import inventory, playbook
from appliance.site.alone import Alone
from appliance.site.backup.catalogue import Record
from appliance.site.model import Site

PLAYBOOK = "database_backup"
ANSWERS = ("penstock_database", "penstock_archive", "penstock_kept")


def make(site: Site, dump: Path, local: Path, **how: Any) -> dict[str, Any]:
    """Dump the database into a file of this machine, with what the master alone has in another one.

    Returns what the dump is; without a database `present` is False.
    """
    return _run(site, "make", {"dump": str(dump), "local": str(local)}, **how)


def check(site: Site, folder: Path, record: Record, **how: Any) -> dict[str, Any]:
    """Load the dump of a backup into a scratch database of the master, and count its rows there."""
    return _run(site, "check", _dump(folder, record), **how)


def restore(site: Site, folder: Path, record: Record, *, kept: str, master: Path | None, **how: Any) -> dict[str, Any]:
    """Put the dump of a backup in the place of the database, which is kept as `kept` if there is work in it.

    `master` is the file with what the master alone had, if that is to come back, too.
    """
    local = str(master) if master else ""
    return _run(site, "restore", {**_dump(folder, record), "kept": kept, "local": local}, **how)


def archive(site: Site, action: str, job: dict[str, Any], **how: Any) -> dict[str, Any]:
    """Do something by the archive of the database's log; a cluster that another took the place of is `kept`."""
    told = _published(site, action, job, **how)
    return {**told["penstock_archive"], "kept": told.get("penstock_kept", "")}


def _dump(folder: Path, record: Record) -> dict[str, Any]:
    return {"dump": str(folder / record.dump), "sha256": record.files[record.dump][1], "tables": record.tables}


def _run(site: Site, action: str, job: dict[str, Any], **how: Any) -> dict[str, Any]:
    answer: dict[str, Any] = _published(site, action, job, **how)["penstock_database"]
    return answer


def _published(
    site: Site, action: str, job: dict[str, Any], *, state: Path, listen: playbook.Listener, held: Alone | None
) -> dict[str, Any]:
    hosts = inventory.build(site, version="", state=str(state))
    hosts["all"]["vars"]["site_database_backup"] = {"action": action, **job}
    limit = [site.master.name]
    result = playbook.run(PLAYBOOK, hosts, state=state, listen=listen, publish=ANSWERS, limit=limit, held=held)
    result.require_success()
    return result.published[site.master.name]
