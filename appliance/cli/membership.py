"""`penstock node info|add|remove|replace`: machines that join a site and leave it, on its controller."""

from __future__ import annotations

from contextlib import AbstractContextManager
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.output import Format, FormatOption, print_table, show
from common.errors import InputError

if TYPE_CHECKING:
    from appliance.site.membership import Changed, Machine
    from appliance.site.model import Site

SiteFile = Annotated[Path, typer.Option("--file", "-f", help="The site file, site.yml.")]
Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="IPv4 address of the machine in the site's network.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
NoDeploy = Annotated[bool, typer.Option("--no-deploy", help="Only write the site file.")]


def info(address: Address, file: SiteFile, output: FormatOption = Format.TABLE) -> None:
    """Read the network interfaces of a machine; runs on the reservoir node and changes nothing."""
    machine = _ask(_site(file), _ipv4(address))
    show(machine.json(), output, lambda _: _print_machine(machine))


def add(
    address: Address,
    file: SiteFile,
    *,
    name: Annotated[str, typer.Option("--name", help="Its name in the site; default: its own.")] = "",
    agent_port: Annotated[int, typer.Option("--agent-port", min=1, max=65535, help="Port of its agent.")] = 6001,
    ib_interface: Annotated[
        str, typer.Option("--ib-interface", metavar="IF", help="Its InfiniBand interface, whose address the site uses.")
    ] = "",
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="How many GPUs it is to have.")] = None,
    gpu_model: Annotated[str, typer.Option("--gpu-model", help="Words of the name that each of them has.")] = "",
    no_deploy: NoDeploy = False,
    yes: Yes = False,
) -> None:
    """Write a machine into the site file as a worker, and deploy it; runs on the reservoir node.

    It is added, then connecting, attaching and ready. One that does not get ready in 5 minutes after its deploy is an
    "Attach Error": it stays in the site file, and a deploy tries again.
    """
    import yaml

    from appliance.site import membership

    if gpu_model and gpus is None:
        raise InputError("says nothing without a count", where="--gpu-model", hint="give --gpus, too")
    where = _ipv4(address)
    machine = _ask(_site(file), where)
    _print_machine(machine)
    joining = membership.Joining(where, name, agent_port, ib_interface, gpus, gpu_model)
    text = _text(file)
    changed = membership.joined(text, str(file), machine, joining)
    node = next(each for each in changed.site.nodes if each.name == changed.node)
    entry = node.model_dump(mode="json", exclude_unset=True)
    print(f"\n{yaml.safe_dump([entry], sort_keys=False)}")
    if not yes:
        typer.confirm(f"Write this into {file}{'' if no_deploy else ' and deploy it'}?", abort=True, err=True)
    _write(file, text, changed)
    print(f"{changed.node}: added to {file}")
    if no_deploy:
        return
    with _told("node add", changed.node):
        _join(file, changed)


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the worker.")],
    file: SiteFile,
    *,
    gone: Annotated[
        bool, typer.Option("--gone", help="The machine does not answer: do not ask it to end its agent.")
    ] = False,
    no_deploy: NoDeploy = False,
    yes: Yes = False,
) -> None:
    """Take a worker out of the site: its agent ends, and its certificate is revoked; runs on the reservoir node.

    While sessions run on it, it takes nothing new and stays: drain it first. Packages, images and volumes stay there.
    """
    from appliance.cli.progress import screen
    from appliance.site import membership

    before, text = _site(file), _text(file)
    changed = membership.left(text, str(file), name)
    if not yes:
        typer.confirm(f"Take {name} out of the site?", abort=True, err=True)
    with _told("node remove", name):
        with screen() as listener:
            membership.detach(before, changed.site, name, listener.event, gone=gone)
        _write(file, text, changed)
        print(f"{name}: taken out of {file}")
        if no_deploy:
            return
        _deploy(file, changed, [])
    print(f"{name}: its certificate is revoked; `penstock node delete {name}` takes it off the API's list")


def replace(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the worker.")],
    address: Address,
    file: SiteFile,
    *,
    gone: Annotated[
        bool,
        typer.Option("--gone", help="The former machine does not answer: do not ask it to end its agent."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Put another machine in the place of a worker, with its name and all that the site file says of it; deploys it.

    The certificate of the former one is revoked. While sessions run there, it takes nothing new and stays: drain it.
    """
    from appliance.cli.progress import screen
    from appliance.site import deployment, membership

    before, text, where = _site(file), _text(file), _ipv4(address)
    machine = _ask(before, where)
    _print_machine(machine)
    changed = membership.moved(text, str(file), machine, name, where)
    if not yes:
        typer.confirm(f"Put {machine.hostname} in the place of {name}?", abort=True, err=True)
    without = membership.left(text, str(file), name).site
    with _told("node replace", name):
        with screen() as listener:
            membership.detach(before, without, name, listener.event, gone=gone)
        deployment.revoke(before, name)
        _write(file, text, changed)
        print(f"{name}: {where} in {file}")
        _join(file, changed)


def _told(command: str, name: str) -> AbstractContextManager[object]:
    """Return what notes a command about a node for the audit log."""
    from appliance.site import commands

    return commands.told(command, f"nodes/{name}")


def _ask(site: Site, address: IPv4Address) -> Machine:
    from appliance.cli.progress import screen
    from appliance.site import membership

    with screen() as listener:
        return membership.ask(site, address, listener.event)


def _join(file: Path, changed: Changed) -> None:
    """Deploy a node that is new, and wait until it is ready."""
    from appliance.cli.progress import screen
    from appliance.site import membership

    print(f"{changed.node}: connecting")
    _deploy(file, changed, [changed.node])
    print(f"{changed.node}: attaching")
    with screen() as listener:
        mode = membership.attach(changed.site, changed.node, listener.event)
    again = f", in mode {mode}; `penstock node activate {changed.node}` lets it take sessions"
    print(f"{changed.node}: ready{'' if mode == 'active' else again}")


def _site(file: Path) -> Site:
    from appliance.cli.files import read_site

    return read_site(file)


def _text(file: Path) -> str:
    from appliance.cli.files import read_text

    return read_text(file)


def _ipv4(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError as error:
        raise InputError(f"{text} is no IPv4 address", where="ADDRESS", hint="write one such as 10.0.0.7") from error


def _write(file: Path, before: str, changed: Changed) -> None:
    from appliance.cli.files import replace_text

    replace_text(file, before, changed.text)


def _deploy(file: Path, changed: Changed, limit: list[str]) -> None:
    from appliance.cli.progress import screen
    from appliance.cli.site import accept_gpus
    from appliance.site import deployment
    from appliance.site.rollout import require_all

    with screen() as listener:
        done = deployment.deploy(changed.site, None, listener, file=changed.text, limit=limit or None)
    accept_gpus(file, changed.text, done)
    require_all({name: why for name, why in done.left_out.items() if not limit or name in limit})


def _print_machine(machine: Machine) -> None:
    print(f"{machine.hostname}, {machine.release}")
    rows = [
        (
            each.name,
            each.kind,
            ", ".join(each.addresses) or "-",
            each.mac or "-",
            str(each.mtu),
            f"{each.speed_mbps / 1000:g} Gbps" if each.speed_mbps else "-",
            "up" if each.up else "down",
        )
        for each in machine.interfaces
    ]
    print_table(("INTERFACE", "KIND", "ADDRESSES", "MAC", "MTU", "SPEED", "STATE"), rows)
