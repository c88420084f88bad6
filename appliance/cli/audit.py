"""The audit log on the command line."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import AuditChange, AuditEntry, AuditFile, AuditVerification
from common.errors import IntegrityError

app = group("The audit log (administrators, auditors): who did what. Search, verify, copy, delete files.")

HEAD = ("TIME", "USER", "FROM", "ACTION", "OBJECT", "RESULT", "WHAT")

LONGEST = 60
"""So many characters of an object are shown."""

DayArgument = Annotated[
    str, typer.Argument(metavar="YYYYMMDD", help="A file by its day in UTC, as `penstock audit files` names it.")
]


@app.command("list")
def list_audit(
    *,
    user: Annotated[str | None, typer.Option("--user", help="What that user did or tried.")] = None,
    object_: Annotated[
        str | None, typer.Option("--object", help="What was done to it, such as projects/vision or nodes/worker1.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", help="What was done in a project.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Such as login or project_change.")] = None,
    result: Annotated[str | None, typer.Option("--result", help="done, refused or failed.")] = None,
    node: Annotated[
        str | None, typer.Option("--node", help="What touched a node, or a session that ran there.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="DATE|AGE", help="From then, or 2h ago, on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DATE", help="Only before the end of then.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many at most.")] = 100,
    form: Annotated[
        Format, typer.Option("-o", "--output", help="table, or json for programs: one line of JSON each.")
    ] = Format.TABLE,
) -> None:
    """Show who did what, the newest first. This look at the log leaves a line there, too."""
    entries = config.load().client.audit.search(
        user=user,
        object_=object_,
        project=project,
        action=action,
        result=result,
        node=node,
        since=parse.past(since, "--since") if since else None,
        until=parse.moment(until, "--until", ends=True) if until else None,
        most=limit,
    )
    if form is Format.JSON:
        for entry in entries:
            print(json.dumps(entry))
    else:
        output.print_table(HEAD, [_row(entry) for entry in entries])


@app.command("verify")
def verify(*, form: FormatOption = Format.TABLE) -> None:
    """Verify the whole log: name each line that was changed, removed, put in, moved or cut off, and exit with 3."""
    verdict = config.load().client.audit.verify()
    output.show(verdict, form, _print_verdict)
    if not verdict["ok"]:
        count = len(verdict["findings"]) + verdict["more_findings"]
        raise IntegrityError(
            f"the audit log is not as it was written: {count} finding{'s' if count > 1 else ''}",
            hint="keep its files as they are, and look for who could write on the master",
        )


@app.command("files")
def files(*, form: FormatOption = Format.TABLE) -> None:
    """List the files of the log, one a day."""
    output.show(config.load().client.audit.files(), form, _print_files)


@app.command("copy")
def copy(day: DayArgument) -> None:
    """Write the file of a day to standard output as it is: lines of JSON, each with its code."""
    for part in config.load().client.audit.file(_file(day)):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


@app.command("delete")
def delete(day: DayArgument) -> None:
    """Delete the file of a day that is over. The log says who did so, and which lines it had."""
    config.load().client.audit.delete(_file(day))
    print(f"{day}.log goes as soon as the log says so.")


def _file(name: str) -> str:
    """Return the name of a file, which has several days where a clock was wrong; raises InputError."""
    return "-".join(map(parse.day, name.split("-")))


def _row(entry: AuditEntry) -> tuple[str, ...]:
    result = entry["result"] if entry["result"] == "done" else f"{entry['result']} ({entry['status']})"
    told = entry["reason"] or "; ".join(_told(change) for change in entry["changes"])
    more = f" (and {entry['left_out']} like this one)" if entry["left_out"] else ""
    return (
        output.moment(entry["time"]),
        entry["user"] or "-",
        entry["address"],
        entry["action"],
        _short(entry["object"]),
        result,
        f"{told}{more}",
    )


def _short(name: str) -> str:
    """Return a name cut, so that a long one makes no other row long; programs get it whole."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _told(change: AuditChange) -> str:
    before, after = change["before"], change["after"]
    who = " ".join(str(value) for key, value in change["subject"].items() if key != "domain")
    if before is not None and after is not None:
        return ", ".join(f"{name} {before[name]} → {after[name]}" for name in after)
    return f"{'-' if after is None else '+'}{change['kind']} {who}"


def _print_files(found: list[AuditFile]) -> None:
    output.print_table(("DAY", "SIZE"), [(file["day"], f"{file['size'] / 1024:.1f}K") for file in found])


def _print_verdict(verdict: AuditVerification) -> None:
    for finding in verdict["findings"]:
        place = f"{finding['day']}.log:{finding['line']}: " if finding["day"] else ""
        print(f"{place}{finding['what']}")
    for one in verdict["deleted"]:
        who = output.plain(one.get("user") or "the clock")
        through = f" to {one['through']}.log" if "through" in one else ""
        gone = f"were deleted by {who}" if through else f"was deleted by {who}"
        print(f"{one['day']}.log{through} {gone}: lines {one['first']} to {one['last']}")
    print(f"{verdict['lines']} lines are as they were written; the last one is line {verdict['last']}.")
    if unheard := verdict.get("unheard"):
        print(f"How far the log went is not known from {', '.join(map(output.plain, unheard))}: no answer from there.")
