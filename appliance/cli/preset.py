"""Presets: amounts for sessions by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import complete_presets, given, group, told_by_options
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Preset
from appliance.client.words import Enforcement
from common.gpu.units import MILLI, format_gpus, parse_gpus

app = group("Presets: amounts for sessions by name.")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the preset.", autocompletion=complete_presets)
]
CpuOption = Annotated[str | None, typer.Option("--cpu", metavar="N", help="Cores, such as 4 or 0.5; 0: no limit.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Memory, such as 4G.")]
ShmOption = Annotated[str | None, typer.Option("--shm", metavar="SIZE", help="Size of /dev/shm, such as 64M or 1G.")]
GpuOption = Annotated[str | None, typer.Option("-g", "--gpus", metavar="N", help="GPUs, such as 0.5, 1 or 2.5.")]
EnforcementOption = Annotated[
    Enforcement | None, typer.Option("--enforcement", help="Its shares are held so, or better.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="What the preset is for.")]


@app.command("list")
def list_presets(form: FormatOption = Format.TABLE) -> None:
    """List the presets, the smallest first."""
    output.show(config.load().client.presets.list(), form, _table)


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one preset."""
    output.show(config.load().client.presets.get(name), form, _fields)


@app.command("create")
def create(
    name: NameArgument,
    *,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    shm: ShmOption = None,
    gpus: GpuOption = None,
    enforcement: EnforcementOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a preset (administrators)."""
    more = given(enforcement=enforcement, description=description)
    sizes = _sizes(cpu, memory, shm, gpus) | more
    with told_by_options():
        preset = config.load().client.presets.create(name=name, **sizes)
    output.show(preset, form, _fields)


@app.command("update")
def update(
    name: NameArgument,
    *,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    shm: ShmOption = None,
    gpus: GpuOption = None,
    enforcement: EnforcementOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a preset (administrators); sessions that were submitted with it stay as they are."""
    more = given(enforcement=enforcement, description=description)
    sizes = _sizes(cpu, memory, shm, gpus) | more
    with told_by_options():
        preset = config.load().client.presets.update(name, **sizes)
    output.show(preset, form, _fields)


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a preset (administrators)."""
    config.load().client.presets.delete(name)
    print(f"Deleted preset {name}.")


def _sizes(cpu: str | None, memory: str | None, shm: str | None, gpus: str | None) -> dict[str, Any]:
    return given(
        cpu_milli=None if cpu is None else parse.cpu_milli(cpu, "--cpu"),
        memory_mib=None if memory is None else parse.size_mib(memory, "--memory"),
        shm_mib=None if shm is None else parse.size_mib(shm, "--shm"),
        gpu_milli=None if gpus is None else parse_gpus(gpus, "-g"),
    )


def _table(presets: list[Preset]) -> None:
    rows = [
        (
            preset["name"],
            f"{preset['cpu_milli'] / MILLI:g}",
            output.gib(preset["memory_mib"]),
            output.gib(preset["shm_mib"]),
            format_gpus(preset["gpu_milli"]),
            preset["description"],
        )
        for preset in presets
    ]
    output.print_table(("NAME", "CPUs", "MEMORY", "SHM", "GPUs", "DESCRIPTION"), rows)


def _fields(preset: Preset) -> None:
    output.print_fields(
        (
            ("Name", preset["name"]),
            ("Description", preset["description"]),
            ("CPUs", f"{preset['cpu_milli'] / MILLI:g}" if preset["cpu_milli"] else "no limit"),
            ("Memory", output.gib(preset["memory_mib"]) if preset["memory_mib"] else "by its share"),
            ("Shared memory", f"{preset['shm_mib']} MiB"),
            ("GPUs", format_gpus(preset["gpu_milli"])),
            ("Enforcement", "" if preset["enforcement"] == "none" else f"{preset['enforcement']} or better"),
        )
    )
