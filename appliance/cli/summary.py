"""Summary: what you run and may run, and where there is room for it."""

from __future__ import annotations

from collections.abc import Callable

from appliance.cli import config, output
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Limit, Summary
from common.gpu.units import MILLI, format_gpus

KINDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "sessions": ("sessions", str),
    "gpu_milli": ("GPUs", format_gpus),
    "cpu_milli": ("CPUs", lambda milli: f"{milli / MILLI:g}"),
    "memory_mib": ("memory", output.gib),
}
"""What limits are of, and how amounts of it are written."""


def summary(*, form: FormatOption = Format.TABLE) -> None:
    """Show what you run and why it waits, your limits and what is left of them, and where there is room."""
    output.show(config.load().client.system.summary(), form, _text)


def _text(mine: Summary) -> None:
    sessions = [
        (
            *(one["name"], one["state"], one["project"], format_gpus(one["gpu_milli"] * one["replicas"])),
            output.age(one["created_at"]),
            f"place {one['position']}: {one['reason']}" if one["position"] else one["reason"],
        )
        for one in mine["sessions"]
    ]
    if sessions:
        output.print_table(("NAME", "STATE", "PROJECT", "GPUs", "AGE", "REASON"), sessions, ("REASON",))
        if mine["more"]:
            print("There are more: penstock list")
    else:
        print("Nothing of yours runs or waits.")
    print()
    limits = [_limit(limit) for limit in mine["limits"]]
    output.print_table(("LIMIT", "IN USE", "WAITED FOR", "AT MOST", "LEFT"), limits)
    print()
    projects = [
        (project["name"], format_gpus(project["used_milli"]), format_gpus(project["quota_milli"]))
        for project in mine["projects"]
    ]
    output.print_table(("PROJECT", "GPUs IN USE", "QUOTA"), projects)
    print()
    groups = [
        (
            group["name"] or "(no group)",
            str(group["nodes"]),
            f"{format_gpus(group['free_gpu_milli'])} of {format_gpus(group['gpu_milli'])}",
            f"{group['free_cpu_milli'] / MILLI:g} of {group['cpu_milli'] / MILLI:g}",
            f"{output.gib(group['free_memory_mib'])} of {output.gib(group['memory_mib'])}",
        )
        for group in mine["groups"]
    ]
    output.print_table(("GROUP", "NODES", "GPUs FREE", "CPUs FREE", "MEMORY FREE"), groups)


def _limit(limit: Limit) -> tuple[str, ...]:
    name, written = KINDS[limit["of"]]
    most, left = limit["most"], limit["left"]
    return (
        name,
        *("without limit" if amount is None else written(amount) for amount in (limit["held"], limit["waiting"])),
        "no limit" if most is None else written(most),
        "" if left is None else written(left),
    )
