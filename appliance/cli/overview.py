"""Overview: the whole site at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Overview
from common.gpu.units import format_gpus


def overview(
    *,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, max=100, help="So many sessions that run, and that wait.")
    ] = 10,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what there is of GPUs, who holds how much, and what runs and waits (administrators, auditors)."""
    shown = config.load().client.system.overview(limit=limit, nodes=0 if form is Format.TABLE else None)
    output.show(shown, form, _text)


def _text(site: Overview) -> None:
    counts = site["sessions"]
    output.print_fields(
        (
            ("Nodes", f"{site['open_count']} of {site['node_count']} take new sessions"),
            ("GPUs", f"{format_gpus(site['used_milli'])} of {format_gpus(site['gpu_milli'])} in use"),
            ("Held, but idle", format_gpus(site["idle_milli"])),
            ("Waited for", format_gpus(site["waiting_milli"])),
            ("Sessions", f"{counts['RUNNING']} run, {counts['PENDING']} wait, {counts['FAILED']} failed"),
        )
    )
    projects = [
        (
            project["name"],
            *(format_gpus(project[key]) for key in ("used_milli", "quota_milli", "idle_milli", "waiting_milli")),
        )
        for project in site["projects"]
    ]
    _part(("PROJECT", "IN USE", "QUOTA", "IDLE", "WAITED FOR"), projects)
    running = [
        (
            *(one["name"], one["project"], one["user"], one["node"] or "-", format_gpus(one["held_milli"])),
            output.age(one["started_at"] or one["created_at"]),
        )
        for one in site["running"]
    ]
    _part(("RUNS", "PROJECT", "USER", "NODE", "GPUs", "FOR"), running)
    waiting = [
        (
            *(one["name"], one["project"], one["user"], format_gpus(one["gpu_milli"] * one["replicas"])),
            *(output.age(one["created_at"]), one["reason"]),
        )
        for one in site["waiting"]
    ]
    _part(("WAITS", "PROJECT", "USER", "GPUs", "FOR", "REASON"), waiting, ("REASON",))


def _part(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], below: tuple[str, ...] = ()) -> None:
    if rows:
        print()
        output.print_table(head, rows, below)
