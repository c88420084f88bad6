"""Nodes and their GPUs."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, membership, output, parse
from appliance.cli.options import complete_groups, complete_nodes, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Gpu, Hca, Interface, Node
from appliance.client.words import NodeMode, NodeState
from common.errors import InputError
from common.gpu.units import MILLI, format_gpus

app = group("Nodes and their GPUs: look, drain, maintenance.")

HEAD = (
    *("NAME", "STATUS", "ENDPOINT", "REGION", "STARTED", "CPUs", "MEMORY", "GPUs", "IN USE", "MODEL", "GROUPS"),
    *("AGENT", "DRIVER", "CUDA", "FGPU", "ENFORCEMENT", "NVLINK", "RDMA", "SEEN"),
)
BELOW = ("ENDPOINT", "REGION", "STARTED", "GROUPS", "AGENT", "DRIVER", "CUDA", "FGPU", "ENFORCEMENT", "NVLINK", "RDMA")
STATES = {"lost": "Error", "unready": "NotReady"}

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.", autocompletion=complete_nodes)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, whatever ends with it.")]

for command in (membership.info, membership.add, membership.remove, membership.replace):
    app.command(command.__name__)(command)


@app.command("list")
def list_nodes(
    *,
    state: Annotated[NodeState | None, typer.Option("--state", help="Only those in this state.")] = None,
    mode: Annotated[NodeMode | None, typer.Option("--mode", help="Only those in this mode.")] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Only those of this group.", autocompletion=complete_groups),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the nodes and what of their GPUs is in use; what is wrong with one stands below."""
    output.show(config.load().client.nodes.list(state=state, mode=mode, group=group), form, _table)


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one node with each of its GPUs."""
    output.show(config.load().client.nodes.get(name), form, _fields)


@app.command("maintenance")
def maintenance(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Let a node take nothing new (administrators); what runs on it stays."""
    _set_mode(name, "maintenance", None, form)


@app.command("drain")
def drain(
    name: NameArgument,
    *,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="10m", help="How long people have to save their work.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Empty a node (administrators): training moves at once, people are warned, then it is in maintenance."""
    _set_mode(name, "draining", timeout, form)


@app.command("activate")
def activate(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Take a node back into service (administrators)."""
    _set_mode(name, "active", None, form)


@app.command("interface")
def interface(
    name: NameArgument,
    chosen: Annotated[
        str, typer.Argument(metavar="[INTERFACE]", help="Name of one of its interfaces that has an address.")
    ] = "",
    *,
    default: Annotated[bool, typer.Option("--default", help="The one that has the node's address.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Choose the network interface by which containers of a session on several nodes meet (administrators).

    It holds for sessions that start later. Choose interfaces of one network on all nodes that share sessions.
    """
    if bool(chosen) == default:
        raise InputError("either an interface or --default", where="INTERFACE", hint="see `penstock node get NAME`")
    node = config.load().client.nodes.change(name, interface=chosen)
    output.show(node, form, lambda _: print(f"{name}: {_meets_by(node)}"))


@app.command("delete")
def delete(name: NameArgument, *, yes: YesOption = False) -> None:
    """Delete a node that is lost, or in maintenance and empty (administrators); asks where that ends sessions."""
    client = config.load().client
    sessions = client.nodes.get(name)["sessions"]
    if sessions and not yes:
        told = "its interactive sessions and services end, trainings start again from the queue"
        typer.echo(f"{name} has live sessions: {sessions}. With the node {told}.", err=True)
        typer.confirm("Delete it?", abort=True, err=True)
    naming = [each["name"] for each in client.groups.list() if name in each["nodes"]]
    client.nodes.delete(name)
    verb = "does" if len(naming) == 1 else "do"
    left = (
        f" Should it report again, it is a new node: {', '.join(naming)} {verb} not name it any more." if naming else ""
    )
    print(f"Deleted node {name}.{left}")


@app.command("end-unknown")
def end_unknown(name: NameArgument) -> None:
    """End the containers on a node whose sessions the database does not know (administrators)."""
    config.load().client.nodes.end_unknown_containers(name)
    print(f"The unknown containers of {name} are ended.")


def _set_mode(name: str, mode: NodeMode, timeout: str | None, form: Format) -> None:
    seconds = None if timeout is None else parse.duration(timeout, "--timeout")
    node = config.load().client.nodes.set_mode(name, mode=mode, **given(drain_timeout_s=seconds))
    output.show(node, form, lambda _: print(f"{name}: {_status(node)}"))


def _table(nodes: list[Node]) -> None:
    output.print_table(HEAD, [_row(node) for node in nodes], BELOW)
    for node in nodes:
        if node["message"]:
            print(f"{node['name']}: {node['message']}")
        if node["unhealthy"]:
            print(f"{node['name']}: unhealthy, takes nothing new: {node['unhealthy']}; see `penstock doctor`")
        if node["withheld"]:
            print(f"{node['name']}: takes nothing new: {node['withheld']}")
        for reason in node["missing_storages"].values():
            print(f"{node['name']}: {reason}")


def _row(node: Node) -> tuple[str, ...]:
    return (
        node["name"],
        _status(node),
        node["endpoint"],
        node["region"] or "-",
        output.moment(node["started_at"]) or "-",
        f"{node['cpu_milli'] / MILLI:g}",
        output.gib(node["memory_mib"]),
        str(len(node["gpus"])),
        format_gpus(node["used_milli"]),
        output.listed(_models(node)),
        output.listed(node["groups"]),
        node["agent_version"],
        node["driver_version"] or "-",
        node["cuda_version"] or "-",
        "on" if node["fractions"] else "off",
        node["enforcement"],
        "yes" if node["nvlink"] else "-",
        "yes" if node["rdma"] else "-",
        output.age(node["last_seen"]) if node["last_seen"] else "never",
    )


def _fields(node: Node) -> None:
    output.print_fields(
        (
            ("Name", node["name"]),
            ("Status", _status(node)),
            ("Message", node["message"]),
            ("Missing storage", "; ".join(node["missing_storages"].values())),
            ("Drained by", output.moment(node["drain_until"])),
            ("Endpoint", node["endpoint"]),
            ("Region", node["region"]),
            ("Leaf switch", node["switch"]),
            ("Resource groups", ", ".join(node["groups"])),
            ("Started", output.moment(node["started_at"])),
            ("Seen", output.moment(node["last_seen"]) or "never"),
            ("Agent", node["agent_version"]),
            ("System", f"{node['os']}, container engine {node['engine_version']}"),
            ("Driver", node["driver_version"]),
            ("CUDA", node["cuda_version"]),
            ("CPUs", f"{node['cpu_milli'] / MILLI:g}"),
            ("Memory", output.gib(node["memory_mib"])),
            ("fGPU", "on" if node["fractions"] else "off"),
            ("Enforcement", node["enforcement"]),
            ("Pending", node["enforcement_pending"]),
            ("NVLink", "yes" if node["nvlink"] else ""),
            ("RDMA", "yes" if node["rdma"] else f"no: {node['no_rdma']}" if node["hcas"] else ""),
            ("Interface", _meets_by(node) if node["interface"] else ""),
            ("Sessions", str(node["sessions"])),
            ("Unknown containers", str(node["unknown_containers"] or "")),
            ("Orphaned GPUs", _orphaned(node)),
            ("Clock", f"{node['clock_offset_s']:+d} s" if node["clock_offset_s"] else ""),
        )
    )
    if node["gpus"]:
        print()
        rows = [
            (
                *(str(gpu["index"]), gpu["uuid"], _model(gpu), f"{gpu['memory_mib']} MiB", gpu["enforcement"]),
                *(_used(gpu), f"{gpu['profile']} of {gpu['parent']}" if gpu["parent"] else ""),
            )
            for gpu in node["gpus"]
        ]
        head = ("GPU", "UUID", "MODEL", "MEMORY", "ENFORCEMENT", "IN USE", "SLICE")
        sliced = any(gpu["parent"] for gpu in node["gpus"])
        output.print_table(head if sliced else head[:-1], rows if sliced else [row[:-1] for row in rows])

    if node["hcas"]:
        print()
        ports = ("HCA", "RATE", "LINK", "STATE", "NUMA NODE", "DISTANCES OF GPUs")
        output.print_table(ports, [_hca(hca) for hca in node["hcas"]])

    if node["interfaces"]:
        print()
        words = ("INTERFACE", "ADDRESSES", "STATE", "SPEED", "MTU")
        output.print_table(words, [_interface(each) for each in node["interfaces"]])


def _interface(each: Interface) -> tuple[str, ...]:
    speed = "-" if each["speed_mbps"] is None else f"{each['speed_mbps']} Mbit/s"
    return each["name"], ", ".join(each["addresses"]) or "-", "up" if each["up"] else "down", speed, str(each["mtu"])


def _meets_by(node: Node) -> str:
    """Return by which interface containers of other nodes reach those of this one."""
    if not node["interface"]:
        return f"sessions meet by {node['address']}"
    for each in node["interfaces"]:
        if each["name"] == node["interface"] and each["addresses"]:
            return f"sessions meet by {each['name']} ({each['addresses'][0]})"
    return f"{node['interface']} has no address now: sessions meet by {node['address']}"


def _hca(hca: Hca) -> tuple[str, ...]:
    far = (
        f"{index}: {distance}" for index, distance in sorted(hca["distances"].items(), key=lambda item: int(item[0]))
    )
    return (
        hca["name"],
        f"{hca['rate_gbps']:g} Gb/s",
        hca["link_layer"],
        hca["state"],
        "-" if hca["numa_node"] is None else str(hca["numa_node"]),
        ", ".join(far) or "-",
    )


def _orphaned(node: Node) -> str:
    """Return what orphaned containers hold, by GPU."""
    indices = {gpu["uuid"]: gpu["index"] for gpu in node["gpus"]}
    held = ((indices.get(uuid, uuid), milli) for uuid, milli in node["orphaned_milli"].items())
    return ", ".join(f"{format_gpus(milli)} of GPU {gpu}" for gpu, milli in held)


def _status(node: Node) -> str:
    """Return a node's state as people know it, with its mode where that is not the usual one."""
    state = STATES.get(node["state"], node["state"].capitalize())
    return state if node["mode"] == "active" else f"{state}, {node['mode']}"


def _models(node: Node) -> list[str]:
    return list(dict.fromkeys(_model(gpu) for gpu in node["gpus"]))


def _used(gpu: Gpu) -> str:
    used = format_gpus(gpu["used_milli"])
    return f"{used} of {format_gpus(gpu['capacity_milli'])}" if gpu["capacity_milli"] < MILLI else used


def _model(gpu: Gpu) -> str:
    marked = gpu["simulated"] and "simulated" not in gpu["model"].lower()
    return f"{gpu['model']} (simulated)" if marked else gpu["model"]
