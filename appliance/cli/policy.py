"""User policies: what a user's live sessions may hold together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Policy
from common.errors import InputError
from common.gpu.units import MILLI, format_gpus, parse_gpus

app = group("User policies: what a user's live sessions may hold together.")

NONE = "none"
"""Takes a limit away."""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the policy.")]
SessionsOption = Annotated[str | None, typer.Option("--sessions", metavar="N|none", help="Live sessions.")]
GpuOption = Annotated[str | None, typer.Option("-g", "--gpus", metavar="N|none", help="GPUs, such as 0.5 or 4.")]
CpuOption = Annotated[str | None, typer.Option("--cpu", metavar="N|none", help="Cores.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", metavar="SIZE|none", help="Memory, such as 64G.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="Whom it is for.")]


@app.command("list")
def list_policies(form: FormatOption = Format.TABLE) -> None:
    """List the user policies."""
    output.show(config.load().client.policies.list(), form, _table)


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one user policy."""
    output.show(config.load().client.policies.get(name), form, _fields)


@app.command("create")
def create(
    name: NameArgument,
    *,
    sessions: SessionsOption = None,
    gpus: GpuOption = None,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a user policy; what is left out has no limit."""
    limits = _limits(sessions, gpus, cpu, memory, description)
    output.show(config.load().client.policies.create(name=name, **limits), form, _fields)


@app.command("update")
def update(
    name: NameArgument,
    *,
    sessions: SessionsOption = None,
    gpus: GpuOption = None,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a user policy; it holds for what is submitted from now on."""
    limits = _limits(sessions, gpus, cpu, memory, description)
    output.show(config.load().client.policies.update(name, **limits), form, _fields)


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a user policy that no user has."""
    config.load().client.policies.delete(name)
    print(f"Deleted policy {name}.")


def _limits(
    sessions: str | None, gpus: str | None, cpu: str | None, memory: str | None, description: str | None
) -> dict[str, Any]:
    readers: tuple[tuple[str, str | None, str, Callable[[str, str], int]], ...] = (
        ("max_sessions", sessions, "--sessions", _count),
        ("max_gpu_milli", gpus, "-g", parse_gpus),
        ("max_cpu_milli", cpu, "--cpu", parse.cpu_milli),
        ("max_memory_mib", memory, "--memory", parse.size_mib),
    )
    limits: dict[str, Any] = {
        key: None if text == NONE else read(text, field) for key, text, field, read in readers if text is not None
    }
    return limits if description is None else {**limits, "description": description}


def _count(text: str, field: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise InputError(f"{text!r} is no number of sessions", where=field, hint="write it like 5, or none")


def _table(policies: list[Policy]) -> None:
    rows = [(policy["name"], *_amounts(policy), policy["description"]) for policy in policies]
    output.print_table(("NAME", "SESSIONS", "GPUs", "CPUs", "MEMORY", "DESCRIPTION"), rows)


def _fields(policy: Policy) -> None:
    sessions, gpus, cpus, memory = _amounts(policy)
    output.print_fields(
        (
            ("Name", policy["name"]),
            ("Description", policy["description"]),
            ("Sessions", sessions),
            ("GPUs", gpus),
            ("CPUs", cpus),
            ("Memory", memory),
            ("Created", output.moment(policy["created_at"])),
        )
    )


def _amounts(policy: Policy) -> tuple[str, str, str, str]:
    gpu, cpu, memory = policy["max_gpu_milli"], policy["max_cpu_milli"], policy["max_memory_mib"]
    return (
        "no limit" if policy["max_sessions"] is None else str(policy["max_sessions"]),
        "no limit" if gpu is None else format_gpus(gpu),
        "no limit" if cpu is None else f"{cpu / MILLI:g}",
        "no limit" if memory is None else output.gib(memory),
    )
