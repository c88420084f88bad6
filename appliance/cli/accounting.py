"""Accounting: who held how much, and for how long."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Accounting, AccountingRow
from appliance.client.words import By


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
    form: FormatOption = Format.TABLE,
) -> None:
    """Report what ran in a period and what it held of GPUs: your own, or that of those whom you look after."""
    report = config.load().client.accounting.report(
        starts_at=parse.moment(from_, "--from") if from_ else None,
        ends_at=parse.moment(until, "--until", ends=True) if until else None,
        by=by,
    )
    output.show(report, form, _table)


def _table(report: Accounting) -> None:
    rows = [
        _row(row, f"{row['name'] or 'the site itself'}{' (deleted)' if row['deleted'] else ''}")
        for row in report["rows"]
    ]
    output.print_table(
        (report["by"].upper(), "SESSIONS", "HOURS", "GPU HOURS"), [*rows, _row(report["total"], "all together")]
    )
    print(f"from {output.moment(report['starts_at'])} until {output.moment(report['ends_at'])}")


def _row(row: AccountingRow, name: str) -> tuple[str, ...]:
    return (name, str(row["sessions"]), f"{row['session_seconds'] / 3600:.1f}", f"{row['gpu_seconds'] / 3600:.1f}")
