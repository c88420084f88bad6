"""Metrics: what a session used of its GPUs."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import ProjectOption
from appliance.cli.output import Format, FormatOption
from appliance.cli.session import NameArgument
from appliance.client.views import Metrics

POINTS = 20
"""Lines of one GPU: what a terminal shows at once."""
HEAD = ("TIME", "CONTAINER", "GPU", "MEMORY", "BUSY", "PROCESSES")


def metrics(
    name: NameArgument,
    *,
    project: ProjectOption = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From: 2027-01-31T22:00, or 2h for 2 hours ago.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until: 2027-01-31T22:00, or 1h for an hour ago.")
    ] = None,
    points: Annotated[
        int, typer.Option("--points", metavar="N", min=1, max=1000, help="Lines of one GPU at most.")
    ] = POINTS,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what a session used of its GPUs, by default in its last hour."""
    remembered = config.load()
    shown = remembered.client.sessions.metrics(
        name,
        project=remembered.project_or(project),
        since=None if since is None else parse.past(since, "--since"),
        until=None if until is None else parse.past(until, "--until"),
        points=points,
    )
    output.show(shown, form, _table)


def _table(shown: Metrics) -> None:
    if not shown["series"]:
        print("No metrics are known of that time.")
        return
    rows = [
        (
            output.moment(point["at"]),
            str(series["rank"]),
            series["uuid"],
            f"{point['memory_mib']} MiB",
            "-" if point["busy_permille"] is None else f"{point['busy_permille'] / 10:.1f} %",
            str(point["processes"]),
        )
        for series in shown["series"]
        for point in series["points"]
    ]
    output.print_table(HEAD, rows)
    print(f"Each line stands for {output.duration(shown['step_s'])}: most memory and processes, mean of busy time.")
