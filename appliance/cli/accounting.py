"""Accounting: who held how much, and for how long."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.output import Format, FormatOption
from appliance.client.views import (
    Accounting,
    AccountingRow,
    Timeline,
    TimelineSeries,
    Utilization,
    WaitFigures,
    WaitRow,
    Waits,
)
from appliance.client.words import By
from common.errors import InputError
from common.gpu.units import format_gpus

STEPS = 30
"""So many steps the site's utilization has, unless it is said."""
WAITED = ("STARTS", "MEDIAN", "95 %", "LONGEST")


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
        typer.Option(
            "--steps", metavar="N", min=1, max=1000, help="Over time, in so many steps at most: GPUs held, or waits."
        ),
    ] = None,
    waits: Annotated[bool, typer.Option("--waits", help="How long sessions waited before they ran.")] = False,
    utilization: Annotated[
        bool,
        typer.Option("--utilization", help="The site's GPUs over time: in all, held and busy."),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Report what ran in a period, what it held of GPUs, how busy these were and what it costs.

    That is your own, or that of those whom you look after. BUSY is the part of the held time in which GPUs were busy,
    and in brackets of how much of it that is known; - where it is of nothing.
    """
    client = config.load().client
    starts_at = parse.moment(from_, "--from") if from_ else None
    ends_at = parse.moment(until, "--until", ends=True) if until else None
    if waits and utilization:
        raise InputError("only one of them at a time", where="--utilization", hint="leave out --waits")
    if utilization:
        of_site = client.accounting.utilization(starts_at=starts_at, ends_at=ends_at, points=steps or STEPS)
        output.show(of_site, form, _utilization)
    elif waits:
        found = client.accounting.waits(starts_at=starts_at, ends_at=ends_at, by=by, points=steps)
        output.show(found, form, _wait_steps if steps else _waits)
    elif steps:
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


def _waits(waits: Waits) -> None:
    rows = [(_name(row), *_waited(row), str(row["waiting"]), _duration(row["oldest_s"])) for row in waits["rows"]]
    total = waits["total"]
    rows.append(("all together", *_waited(total), str(total["waiting"]), _duration(total["oldest_s"])))
    output.print_table((waits["by"].upper(), *WAITED, "WAITING NOW", "OLDEST"), rows)
    print(f"from {output.moment(waits['starts_at'])} until {output.moment(waits['ends_at'])}")


def _wait_steps(waits: Waits) -> None:
    start, step = datetime.fromisoformat(waits["starts_at"]), timedelta(seconds=waits["step_s"])
    rows = [
        (output.moment((start + number * step).isoformat()), *_waited(figures))
        for number, figures in enumerate(waits["steps"])
    ]
    output.print_table(("FROM", *WAITED), rows)


def _waited(figures: WaitFigures) -> tuple[str, ...]:
    return str(figures["count"]), *(_duration(figures[name]) for name in ("median_s", "p95_s", "longest_s"))


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else output.duration(round(seconds))


def _utilization(found: Utilization) -> None:
    start, step = datetime.fromisoformat(found["starts_at"]), timedelta(seconds=found["step_s"])
    rows = [
        (
            output.moment((start + number * step).isoformat()),
            "-" if each["gpu_milli"] is None else format_gpus(each["gpu_milli"]),
            format_gpus(each["held_milli"]),
            format_gpus(each["busy_milli"]) if each["covered_milli"] else "-",
            _busy(each["busy_milli"], each["covered_milli"], each["held_milli"]),
        )
        for number, each in enumerate(found["steps"])
    ]
    output.print_table(("FROM", "GPUS", "HELD", "BUSY", "BUSY OF HELD"), rows)


def _table(report: Accounting) -> None:
    currency = report["currency"]
    rows = [_row(row, _name(row)) for row in report["rows"]] + [_row(report["total"], "all together")]
    head = (report["by"].upper(), "SESSIONS", "HOURS", "GPU HOURS", "BUSY", *([f"COST {currency}"] if currency else []))
    output.print_table(head, rows)
    print(f"from {output.moment(report['starts_at'])} until {output.moment(report['ends_at'])}")


def _name(whose: AccountingRow | TimelineSeries | WaitRow) -> str:
    return f"{whose['name'] or 'the site itself'}{' (deleted)' if whose['deleted'] else ''}"


def _row(row: AccountingRow, name: str) -> tuple[str, ...]:
    hours = (f"{row['session_seconds'] / 3600:.1f}", f"{row['gpu_seconds'] / 3600:.1f}")
    busy = _busy(row["busy_gpu_seconds"], row["covered_gpu_seconds"], row["gpu_seconds"])
    return (name, str(row["sessions"]), *hours, busy, *([] if row["cost"] is None else [row["cost"]]))


def _busy(busy: float, covered: float, held: float) -> str:
    """Return how much was busy of what that is known of, and of how much it is known."""
    return f"{busy / covered:.0%} (of {min(1, covered / held):.0%})" if covered and held else "-"
