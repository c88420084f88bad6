"""Logs on the command line: of a session, or of the services of all nodes."""

from __future__ import annotations

import codecs
import json
import sys
from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import ProjectOption, complete_sessions, told_by_options
from appliance.cli.output import Format
from appliance.client.views import LogEntry
from common.errors import InputError, UnavailableError

OF_SITE = ("--request", "--session", "--user", "--node", "--unit", "--level", "--since", "--until")
HEAD = ("TIME", "NODE", "UNIT", "LEVEL", "WHAT")

SessionArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The session.", autocompletion=complete_sessions)
]


def logs(
    name: SessionArgument = None,
    *,
    project: ProjectOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the session ends.")] = False,
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="N", min=0, help="Of that container of it, from 0; else the first.")
    ] = None,
    tail: Annotated[int | None, typer.Option("-n", "--tail", metavar="N", min=0, help="Only the last N lines.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Give a terminal what the session has written for it, such as colours.")
    ] = False,
    site: Annotated[
        bool, typer.Option("--site", help="Of services on all nodes instead (administrators, auditors).")
    ] = False,
    request: Annotated[str | None, typer.Option("--request", help="With --site: of that request.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="With --site: of that session, by its id, or by its name with -p.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="With --site: of that user's requests.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="With --site: from that node, or about it.")] = None,
    unit: Annotated[str | None, typer.Option("--unit", help="With --site: of that service, as penstock-agent.")] = None,
    level: Annotated[str | None, typer.Option("--level", help="With --site: as bad as error, warning or info.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE|AGE", help="With --site: from then, or 2h ago, on.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="With --site: only before the end of then.")
    ] = None,
    form: Annotated[
        Format, typer.Option("-o", "--output", help="With --site: table, or json: one line of JSON each.")
    ] = Format.TABLE,
) -> None:
    """Show a session's log, which can be read after its end; or with --site what services of all nodes have logged."""
    given = (request, session, user, node, unit, level, since, until)
    if not site:
        if unused := [option for option, value in zip(OF_SITE, given, strict=True) if value is not None]:
            raise InputError("this is for the logs of the site", where=unused[0], hint="give --site as well")
        if name is None:
            raise InputError("no session is named", where="NAME", hint="name one, or give --site")
        _of_session(name, project, rank=rank, follow=follow, tail=tail, raw=raw or not sys.stdout.isatty())
        return
    if name is not None or follow or rank is not None:
        hint = "use --session for one of its sessions; the logs of the site cannot be followed"
        where = "-f" if follow else "NAME" if rank is None else "--rank"
        raise InputError("this is for the log of one session", where=where, hint=hint)
    entries = config.load().client.logs.search(
        request=request,
        session=session,
        project=project,
        user=user,
        node=node,
        unit=unit,
        level=level,
        since=parse.past(since, "--since") if since else None,
        until=parse.moment(until, "--until", ends=True) if until else None,
        most=100 if tail is None else tail,
    )
    if form is Format.JSON:
        for entry in reversed(entries):
            print(json.dumps(entry))
    else:
        output.print_table(HEAD, [_row(entry) for entry in reversed(entries)])


def _row(entry: LogEntry) -> tuple[str, ...]:
    unit = entry["unit"].removesuffix(".service")
    # a line that names another node than the one that sent it is no proof of anything
    node = f"{entry['node']} (as {entry['host']})" if entry["host"] else entry["node"]
    return (output.moment(entry["time"]), node, unit, entry["level"], entry["message"])


def _of_session(name: str, project: str | None, *, rank: int | None, follow: bool, tail: int | None, raw: bool) -> None:
    remembered = config.load()
    sessions, chosen = remembered.client.sessions, remembered.project_or(project)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with told_by_options(rank="--rank"):
            for chunk in sessions.log(name, project=chosen, rank=rank, follow=follow, tail=tail):
                # a session's words are for a reader: what a terminal obeys could make it show others
                text = decoder.decode(chunk).replace("\r\n", "\n")
                sys.stdout.buffer.write(chunk if raw else output.plain(text, kept="\n\t").encode())
                sys.stdout.buffer.flush()
    except UnavailableError:
        # a log that has begun can only be cut: who may not see the session any more hears it here
        sessions.get(name, project=chosen)
        raise
