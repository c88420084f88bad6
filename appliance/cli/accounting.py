"""Accounting: who held how much, and for how long."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Accounting, AccountingRow, Timeline, TimelineSeries
from appliance.client.words import By
from common.gpu.units import format_gpus


def accounting(
    *,
    by: Annotated[By, typer.Option("--by", help="What to add up by.")] = "user",
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="DATE", help="First day or moment; default: 30 days before the last."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Last day or moment; default: now.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, max=1000, help="GPUs held over time, in so many steps at most."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Report what ran in a period and what it held of GPUs: your own, or that of those whom you look after."""
    client = config.load().client
    starts_at = parse.moment(from_, "--from") if from_ else None
    ends_at = parse.moment(until, "--until", ends=True) if until else None
    if steps:
        timeline = client.accounting.timeline(starts_at=starts_at, ends_at=ends_at, by=by, points=steps)
        output.show(timeline, form, _steps)
    else:
        output.show(client.accounting.report(starts_at=starts_at, ends_at=ends_at, by=by), form, _table)


def _steps(timeline: Timeline) -> None:
    start, step = datetime.fromisoformat(timeline["starts_at"]), timedelta(seconds=timeline["step_s"])
    names = [_name(series) for series in timeline["series"]]
    numbers = range(max((len(series["gpu_milli"]) for series in timeline["series"]), default=0))
    rows = [
        (
            output.moment((start + number * step).isoformat()),
            *(format_gpus(series["gpu_milli"][number]) for series in timeline["series"]),
        )
        for number in numbers
    ]
    output.print_table(("FROM", *names), rows)


def _table(report: Accounting) -> None:
    rows = [_row(row, _name(row)) for row in report["rows"]]
    output.print_table(
        (report["by"].upper(), "SESSIONS", "HOURS", "GPU HOURS"), [*rows, _row(report["total"], "all together")]
    )
    print(f"from {output.moment(report['starts_at'])} until {output.moment(report['ends_at'])}")


def _name(whose: AccountingRow | TimelineSeries) -> str:
    return f"{whose['name'] or 'the site itself'}{' (deleted)' if whose['deleted'] else ''}"


def _row(row: AccountingRow, name: str) -> tuple[str, ...]:
    return (name, str(row["sessions"]), f"{row['session_seconds'] / 3600:.1f}", f"{row['gpu_seconds'] / 3600:.1f}")
