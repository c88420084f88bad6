"""Projects as the command line prints them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from appliance.cli import output
from appliance.cli.output import Format
from appliance.client.views import Project
from common.gpu.units import format_gpus

NEVER = "never"


def table(projects: list[Project], current: str) -> None:
    """Print projects, with a mark at the current one."""
    head = ("", "NAME", "GPUs", "IN USE", "OVER-QUOTA", "UNTIL", "TRAINING ON", "INTERACTIVE ON", "MEMBERS", "CREATED")
    rows = [
        (
            "*" if project["name"] == current else "",
            project["name"],
            format_gpus(project["quota_milli"]),
            format_gpus(project["used_milli"]),
            _over_quota(project),
            _end(project),
            project["training_group"] or "-",
            project["interactive_group"] or "-",
            output.listed(project["managers"] + project["members"]),
            output.age(project["created_at"]),
        )
        for project in projects
    ]
    output.print_table(head, rows, below=("TRAINING ON", "INTERACTIVE ON", "MEMBERS"))


def show(project: Project, form: Format) -> None:
    """Print a project, and what it warns of."""
    output.show(project, form, fields)
    for warning in project["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)


def fields(project: Project) -> None:
    """Print all of a project, a line for each of its fields."""
    limit, extension = project["interactive_limit_s"], project["interactive_extension_s"]
    output.print_fields(
        (
            ("Name", project["name"]),
            ("Description", project["description"]),
            ("Domain", project["domain"] or ""),
            ("GPUs", format_gpus(project["quota_milli"])),
            ("In use", format_gpus(project["used_milli"])),
            ("Over-quota", _over_quota(project)),
            ("Had of it", format_gpus(project["had_milli"]) if project["had_milli"] else ""),
            ("CPUs", _bounds(project["cpu_quota_milli"], project["cpu_limit_milli"], _cpus)),
            ("Memory", _bounds(project["memory_quota_mib"], project["memory_limit_mib"], output.gib)),
            ("From", output.moment(project["period"]["starts_at"])),
            ("Until", output.moment(project["period"]["ends_at"]) or NEVER),
            ("Active", "yes" if project["active"] else "no, it is outside its period"),
            ("At the end", "sessions are stopped" if project["on_expiry"] == "stop" else "sessions may finish"),
            ("Managers", ", ".join(project["managers"])),
            ("Members", ", ".join(project["members"])),
            ("Training on", project["training_group"] or ""),
            ("Interactive on", project["interactive_group"] or ""),
            ("Interactive limit", output.duration(limit) if limit else ""),
            ("Extension", f"{output.duration(extension)} in total" if limit and extension else ""),
            ("Minimum run time", _min_runtime(project)),
            ("Session access", project["session_access"]),
            ("Created", output.moment(project["created_at"])),
        )
    )


def _min_runtime(project: Project) -> str:
    least = project["min_runtime_s"]
    return "" if least is None else output.duration(least) if least else "none"


def _over_quota(project: Project) -> str:
    if not project["over_quota"]:
        return "no"
    weight = "yes" if project["over_quota_weight"] is None else f"weight {project['over_quota_weight']}"
    return weight if project["limit_milli"] is None else f"{weight}, up to {format_gpus(project['limit_milli'])}"


def _cpus(milli: int) -> str:
    return f"{milli / 1000:g}"


def _bounds(quota: int | None, limit: int | None, words: Callable[[int], str]) -> str:
    if quota is None:
        return ""
    return words(quota) if limit is None else f"{words(quota)}, up to {words(limit)}"


def _end(project: Project) -> str:
    end = project["period"]["ends_at"]
    return output.moment(end)[:10] + ("" if project["active"] else " (not active)") if end else NEVER
