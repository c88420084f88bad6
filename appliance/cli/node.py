"""Nodes and their GPUs."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Gpu
from appliance.gpu.units import MILLI, format_gpus

app = typer.Typer(no_args_is_help=True, help="Nodes and their GPUs.")


@app.command("list")
def list_nodes(form: FormatOption = Format.TABLE) -> None:
    """List the nodes and what of their GPUs is in use."""
    nodes = config.load().client.nodes.list()
    if form is Format.JSON:
        output.print_json(nodes)
        return
    output.print_table(
        ("NAME", "STATUS", "ADDRESS", "CPUs", "MEMORY", "GPUs", "IN USE", "MODEL", "SEEN"),
        [
            (
                node["name"],
                node["state"].capitalize(),
                node["address"],
                f"{node['cpu_milli'] / MILLI:g}",
                _gib(node["memory_mib"]),
                str(len(node["gpus"])),
                format_gpus(sum(gpu["used_milli"] for gpu in node["gpus"])),
                ", ".join(dict.fromkeys(_model(gpu) for gpu in node["gpus"])) or "-",
                output.age(node["last_seen"]) if node["last_seen"] else "never",
            )
            for node in nodes
        ],
    )


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.")], form: FormatOption = Format.TABLE
) -> None:
    """Show one node with each of its GPUs."""
    node = config.load().client.nodes.get(name)
    if form is Format.JSON:
        output.print_json(node)
        return
    output.print_fields(
        (
            ("Name", node["name"]),
            ("Status", node["state"].capitalize()),
            ("Agent", f"{node['agent_version']} at {node['address']}:{node['port']}"),
            ("Seen", output.moment(node["last_seen"]) or "never"),
            ("CPUs", f"{node['cpu_milli'] / MILLI:g}"),
            ("Memory", _gib(node["memory_mib"])),
            ("Enforcement", node["enforcement"]),
        )
    )
    if node["gpus"]:
        print()
        rows = [
            (str(gpu["index"]), gpu["uuid"], _model(gpu), f"{gpu['memory_mib']} MiB", format_gpus(gpu["used_milli"]))
            for gpu in node["gpus"]
        ]
        output.print_table(("GPU", "UUID", "MODEL", "MEMORY", "IN USE"), rows)


def _model(gpu: Gpu) -> str:
    marked = gpu["simulated"] and "simulated" not in gpu["model"].lower()
    return f"{gpu['model']} (simulated)" if marked else gpu["model"]


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}G"
