"""`penstock backup`: take, list and verify backups, and come back from one.

It runs on the reservoir node, as root. What replaces nothing may be ordered from elsewhere, by the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import backup_orders
from appliance.cli.backup_orders import AHEAD
from appliance.cli.files import read_site
from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption, duration, moment, print_json, show
from appliance.cli.reservoir.common import Key, ReplaceKey, TrustFirst, public_key
from appliance.site.inventory import SITE_FILE, STATE
from common.backup_protocol import BackupAction
from common.errors import InputError, PenstockError, ProcessError

if TYPE_CHECKING:
    from appliance.site.alone import Alone
    from appliance.site.backup.catalogue import Record
    from appliance.site.backup.make import Backups
    from appliance.site.backup.restore import Restored

app = group(
    "Backups of the site, on its reservoir node or by the API: "
    "now, list, history, cancel, verify, restore, rebuild, drill, unseal, key, signer."
)

SITE = Path(STATE, SITE_FILE)

SiteFile = Annotated[Path, typer.Option("--file", "-f", help="The site file; the one of the last deploy by itself.")]
Name = Annotated[str | None, typer.Argument(metavar="BACKUP", help="Its name; the newest good one by itself.")]
From = Annotated[Path | None, typer.Option("--from", help="Folder with the backups, such as the second place.")]
Wal = Annotated[bool, typer.Option("--wal", help="From the archive of the database's log, up to its end.")]
ToTime = Annotated[
    datetime | None,
    typer.Option(
        "--to-time",
        formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"],
        help="From that archive, as at a moment; on the clock of this machine where it has no zone.",
    ),
]
Unsigned = Annotated[
    bool,
    typer.Option(
        "--unsigned", help="A backup that this site did not sign, too: whoever made it can do anything on the master."
    ),
]
Signer = Annotated[
    str | None,
    typer.Option("--signer", help="Who made the backup, as `backup signer` says; by itself as the key's file does."),
]
Identity = Annotated[Path, typer.Option("--identity", help="The private key that backups are sealed to.")]


@app.command("now")
def now(file: SiteFile = SITE, output: FormatOption = Format.TABLE) -> None:
    """Take a backup, load it into a scratch database and count its rows, copy it, and let old ones go."""
    if _is_elsewhere(file):
        backup_orders.run(BackupAction.NOW, None, output)
        return
    from appliance.site import commands

    with _backups(file) as (backups, held), commands.told("backup now", "backups"):
        record = backups.take(held)
    if output is Format.JSON:
        print_json(asdict(record))
        return
    print(f"{record.name} is good: {_told(record)}")
    if not record.sealed:
        print("It has no authority and no keys: `penstock backup key` tells what the site file needs for that.")
    if record.uncopied:
        print(f"It is not in the second place: {record.uncopied}")
    if record.unarchived:
        print(f"The archive of the database's log has no backup to begin with: {record.unarchived}")


@app.command("list")
def list_backups(file: SiteFile = SITE, source: From = None, output: FormatOption = Format.TABLE) -> None:
    """List the backups, the newest first, and what is wrong; exit code 1 where none of the last 26 hours is good.

    A site that has no backup yet ends with 1, too. With --from the code is 0.
    """
    if source is None and _is_elsewhere(file):
        backup_orders.show_list(output)
    from appliance.site.backup import health, orders
    from appliance.site.backup.catalogue import Catalogue
    from appliance.site.backup.make import FOLDER

    now = datetime.now(UTC)
    records = Catalogue(source or FOLDER).tries()
    reports = [orders.report(record, now) for record in records]
    found = [] if source else health.judged(read_site(file), FOLDER, now)
    window = {} if source else _window(file)
    if output is Format.JSON:
        print_json(
            {
                "backups": [asdict(each) | {"good": each.good} for each in records],
                "checks": [asdict(check) for check in found],
                "window": window,
            }
        )
    else:
        backup_orders.print_backups(reports)
        if "problem" in window:
            print(f"Recovery window by the log: unknown: {window['problem']}")
        elif window:
            print(f"Recovery window by the log: {moment(window['begins'])} to {moment(window['ends'])}")
        for check in found:
            if check.hint:
                print(f"{check.state}: {check.id}: {check.evidence}. Hint: {check.hint}.")
    raise typer.Exit(0 if source or backup_orders.has_fresh(reports, now) else 1)


@app.command("history")
def history(output: FormatOption = Format.TABLE) -> None:
    """List what was ordered from elsewhere, the latest first, and what came of it."""
    if _is_elsewhere(SITE):
        backup_orders.print_history(backup_orders.known(), output)
        return
    from appliance.site import deployment
    from appliance.site.backup.make import FOLDER
    from appliance.site.backup.orders import Orders

    found = sorted(Orders(deployment.STATE, FOLDER).all(), key=lambda order: order.ordered_at, reverse=True)
    backup_orders.print_history(found, output)


@app.command("cancel")
def cancel(
    order: Annotated[str, typer.Argument(metavar="ORDER", help="An order, or the beginning of its id.")],
    output: FormatOption = Format.TABLE,
) -> None:
    """Call back what was ordered by the API and waits for the controller; `history` lists it."""
    backup_orders.cancel(order, output)


@app.command("verify")
def verify(
    name: Name = None,
    identity: Annotated[
        Path | None, typer.Option("--identity", help="The private key: opens what is sealed, too.")
    ] = None,
    file: SiteFile = SITE,
    output: FormatOption = Format.TABLE,
) -> None:
    """Check the hashes of a backup, load it into a scratch database, and count its rows."""
    if identity is None and _is_elsewhere(file):
        backup_orders.run(BackupAction.VERIFY, name, output)
        return
    with _backups(file) as (backups, held):
        record = backups.verify(name, identity, held)
    if output is Format.JSON:
        print_json(asdict(record))
        return
    print(f"{record.name} is good: {_told(record)}")
    if record.remade == record.verified:
        print(f"Its {record.plain} was damaged, and was made again: look at the disk.")


@app.command("restore")
def restore(
    *,
    name: Name = None,
    source: From = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where the database has sessions; it is kept under another name.")
    ] = False,
    unsigned: Unsigned = False,
    wal: Wal = False,
    to_time: ToTime = None,
    file: SiteFile = SITE,
    output: FormatOption = Format.TABLE,
) -> None:
    """Put the database of a backup onto the master, which is deployed. Sessions that run go on, and are adopted again.

    What runs and the database does not know is left alone, and told by `penstock node list`.
    """
    from appliance.site import commands
    from appliance.site.backup import archive
    from appliance.site.backup import restore as restoring

    by_log = _is_by_log(name, source, to_time, wal=wal)
    subject = "backups/wal" if by_log else _subject(name)
    with _backups(file) as (backups, held), commands.told("backup restore", subject):
        if by_log:
            done = archive.rewind(backups, _known(to_time), replace=replace, held=held)
        else:
            place = source or backups.folder
            done = restoring.restore(backups, name, place, replace=replace, unsigned=unsigned, held=held)
    if output is Format.JSON:
        print_json(_plain(done))
        return
    _print_way_back(done, "is the database now")
    if done.kept:
        remove = f"rm -r {done.kept}" if by_log else f"runuser -u postgres dropdb {done.kept}"
        print(f"The database before is kept as {done.kept}: `{remove}` removes it.")
    print("`penstock node list` tells of containers whose sessions the database does not know; they were left alone.")


@app.command("drill")
def drill(
    *,
    name: Name = None,
    source: From = None,
    unsigned: Unsigned = False,
    wal: Wal = False,
    to_time: ToTime = None,
    file: SiteFile = SITE,
    output: FormatOption = Format.TABLE,
) -> None:
    """Rehearse a restore into a scratch database, and print recovery point and recovery time; changes nothing."""
    by_log = _is_by_log(name, source, to_time, wal=wal)
    if source is None and not by_log and _is_elsewhere(file):
        backup_orders.run(BackupAction.DRILL, name, output)
        return
    from appliance.site.backup import archive
    from appliance.site.backup import restore as restoring

    with _backups(file) as (backups, held):
        if by_log:
            done = archive.rehearse(backups, _known(to_time), held)
        else:
            done = restoring.drill(backups, name, source or backups.folder, unsigned=unsigned, held=held)
    if output is Format.JSON:
        print_json(_plain(done))
        return
    _print_way_back(done, "came back as a scratch database")


@app.command("unseal")
def unseal(
    identity: Identity,
    name: Name = None,
    source: From = None,
    *,
    signer: Signer = None,
    unsigned: Unsigned = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Put authority, keys, site file and uploads onto a new reservoir node, before its first deploy."""
    from appliance.site import commands
    from appliance.site.backup import restore as restoring
    from appliance.site.backup.make import FOLDER

    by = _by(signer, identity, unsigned=unsigned)
    with commands.told("backup unseal", _subject(name)):
        record, count = restoring.unseal(name, source or FOLDER, identity, by)
    next_ = f"Now deploy with {SITE}, then run `penstock backup restore`."
    show(
        {"backup": record.name, "files": count},
        output,
        lambda _: print(f"{record.name}: {count} files are back. {next_}"),
    )


@app.command("rebuild")
def rebuild(
    identity: Identity,
    bundle: Annotated[Path, typer.Option(help="Folder of the bundle.")],
    name: Name = None,
    source: From = None,
    *,
    signer: Signer = None,
    unsigned: Unsigned = False,
    key: Key = None,
    trust_first: TrustFirst = False,
    replace_key: ReplaceKey = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Come back on a bare reservoir node: unseal, deploy from the bundle, restore. Run again, it goes on where it was.

    A worker that is down, unfit or fails is left out and named, with exit code 11; the next deploy catches it up.
    """
    from appliance.cli.progress import screen
    from appliance.site import commands
    from appliance.site.backup.make import FOLDER
    from appliance.site.rebuild import Rebuild
    from appliance.site.rollout import require_all
    from reservoir.intake.trust import Spoken

    spoken = Spoken(public_key(key), trust_first, replace_key)
    by = _by(signer, identity, unsigned=unsigned)
    with commands.told("backup rebuild", _subject(name)), screen() as listener:
        done = Rebuild(source or FOLDER, identity, bundle, by, listener, spoken=spoken).run(name)
    if output is Format.JSON:
        print_json(_plain(done.restored) | {"seconds": done.seconds, "deployment": done.deployment.json()})
    else:
        _print_way_back(done.restored, "is the database now")
        took = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in done.seconds.items())
        print(f"The site is back after {sum(done.seconds.values()):.1f} s: {took}")
    require_all(done.deployment.left_out)


@app.command("key")
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="For the private key; keep it off the site.")],
    output: FormatOption = Format.TABLE,
) -> None:
    """Make the key that opens sealed backups, away from the site, and print its public half for the site file."""
    from appliance.site.backup import sealing

    line = f"Once the site is deployed, add the line that `penstock backup signer` prints there to {file}."
    show(
        {"recipient": sealing.new_identity(file)}, output, lambda made: print(f"recipient: {made['recipient']}\n{line}")
    )


@app.command("signer")
def signer(output: FormatOption = Format.TABLE) -> None:
    """Print who signs this site's backups, for the key's file: a bare machine takes those of nobody else."""
    from appliance.site import deployment
    from appliance.site.backup import signature
    from appliance.site.backup.secrets import Places

    deployment.require_controller(read_site(SITE))
    show({"signer": signature.signer(Places())}, output, lambda made: print(f"{signature.LINE}{made['signer']}"))


@app.command("carry-out", hidden=True)
def carry_out(order: str) -> None:
    """Do what was ordered by the API: what the unit of an order starts."""
    from appliance.site import deployment
    from appliance.site.backup import orders
    from appliance.site.backup.make import FOLDER

    known = orders.Orders(deployment.STATE, FOLDER)
    done = orders.carry_out(known.get(order), known, lambda: _backups(SITE))
    if done.reason:
        # the reason has its hint
        raise ProcessError(done.reason.rstrip("."), where=f"backup {done.action}")


def _is_elsewhere(file: Path) -> bool:
    """Say whether this machine is no controller, and no site file is given that says otherwise."""
    from appliance.site import deployment

    return file == SITE and not deployment.is_controller()


@contextmanager
def _backups(file: Path) -> Iterator[tuple[Backups, Alone]]:
    """Give the site's backups while no deploy runs."""
    from appliance.cli.progress import screen
    from appliance.site import deployment
    from appliance.site.alone import alone
    from appliance.site.backup.make import Backups

    site = read_site(file)
    deployment.require_controller(site)
    with alone(deployment.STATE) as held, screen() as listener:
        yield Backups(site, listener.event), held


def _subject(name: str | None) -> str:
    return f"backups/{name or 'newest'}"


def _by(signer: str | None, identity: Path, *, unsigned: bool) -> str:
    """Return who may have made a backup that a bare machine comes back from; with none anybody."""
    from appliance.site.backup import signature

    if unsigned and signer:
        raise InputError(
            "one of both says that anybody may have made it", where="--unsigned", hint="say --signer or --unsigned"
        )
    return "" if unsigned else signature.named(signer, identity)


def _is_by_log(name: str | None, source: Path | None, to_time: datetime | None, *, wal: bool) -> bool:
    """Say whether the archive of the database's log is meant; InputError where a backup is named, too."""
    by_log = wal or to_time is not None
    if by_log and (name or source):
        raise InputError(
            "the archive has no backups with names", where="--wal", hint="name a backup, or say --wal or --to-time"
        )
    return by_log


def _known(to_time: datetime | None) -> datetime | None:
    return to_time.astimezone(UTC) if to_time else None


def _window(file: Path) -> dict[str, str]:
    """Return from when to when the archive brings the database back, or why that is not known; nothing without one."""
    from appliance.site.backup import archive

    if read_site(file).backup.wal_to is None:
        return {}
    try:
        with _backups(file) as (backups, held):
            return asdict(archive.window(backups, held))
    except PenstockError as error:
        return {"problem": "; ".join(str(problem) for problem in error.problems)}


def _told(record: Record) -> str:
    rows, seconds = sum(record.tables.values()), record.seconds
    took = f"dumped in {seconds.get('dump', 0):.1f} s, loaded in {seconds.get('restore', 0):.1f} s"
    ahead = f"; {AHEAD}" if record.is_ahead(datetime.now(UTC)) else ""
    return f"{rows} rows of {len(record.tables)} tables came back; {took}{ahead}"


def _plain(done: Restored) -> dict[str, Any]:
    return {
        "backup": done.record.name,
        "recovery_point": done.record.time,
        "recovery_point_s": round(done.point_s),
        "recovery_time_s": done.seconds,
        "kept": done.kept,
    }


def _print_way_back(done: Restored, what: str) -> None:
    print(f"{done.record.name} {what}: {sum(done.record.tables.values())} rows of {len(done.record.tables)} tables.")
    print(f"Recovery point: {moment(done.record.time)}, {duration(round(done.point_s))} ago")
    print(f"Recovery time: {done.seconds:.1f} s")
