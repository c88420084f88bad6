"""Queue: the sessions that wait, in its order, and why each does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.options import ProjectOption
from appliance.cli.output import Format, FormatOption
from appliance.client.views import QueueEntry, SessionEntry
from common.errors import InputError
from common.gpu.units import format_gpus

LAST = 10**9


def queue(
    *,
    project: ProjectOption = None,
    site: Annotated[
        bool,
        typer.Option("--site", help="All of the site, as the scheduler served it last (administrators, auditors)."),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the sessions that wait, in the order of the queue, and why each does; of all your projects by default."""
    if site and project is not None:
        raise InputError("the site has all projects", where="--site", hint="leave out --project or --site")
    client = config.load().client
    if site:
        output.show(client.scheduler.queue(), form, _table)
        return
    waiting = client.sessions.list(project, state=["PENDING"])
    output.show(sorted(waiting, key=_place), form, _table)


def _place(session: SessionEntry) -> tuple[int, str]:
    # what the scheduler has not looked at yet has no position
    return session["position"] or LAST, session["created_at"]


def _table(waiting: Sequence[SessionEntry] | Sequence[QueueEntry]) -> None:
    rows = [
        (
            str(session["position"] or "-"),
            session["name"],
            session["project"],
            session["user"],
            format_gpus(session["gpu_milli"] * session["replicas"]),
            str(session["priority"]),
            output.age(session["created_at"]),
            session["reason"],
        )
        for session in waiting
    ]
    output.print_table(("#", "NAME", "PROJECT", "USER", "GPUs", "PRIORITY", "AGE", "WAITS FOR"), rows, ("WAITS FOR",))
