"""Machines that join a site as workers, and workers that leave it: what the site file says, and what follows from it.

A machine is asked before anything is written. The site file stays the only truth: it is written first, and what a
deploy does of it after that can be done again by another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from appliance.site import departure, inventory, playbook, site_file_edit
from appliance.site.alone import alone
from appliance.site.deployment import STATE, require_controller
from appliance.site.expected_gpus import FOUND
from appliance.site.groups import ATTACHMENT, DETACHMENT, INTERFACES
from appliance.site.model import NodeRole, Site
from appliance.site.playbook import Listener
from appliance.site.site_file import load
from common.errors import InputError, UnavailableError
from common.yaml_document import parse

FACTS = "interfaces_machine"
ASKED = "machine"
"""The name of a machine that has none in the site yet."""


@dataclass(frozen=True)
class Interface:
    """A network interface of a machine, as its kernel says it; `speed_mbps` None means that it does not say."""

    name: str
    kind: str
    mac: str
    mtu: int
    speed_mbps: int | None
    up: bool
    addresses: list[str]


@dataclass(frozen=True)
class Machine:
    """What a machine says of itself: its name, the code name of its release, and its interfaces but the loopback."""

    hostname: str
    release: str
    interfaces: list[Interface]

    def json(self) -> dict[str, Any]:
        """Return the machine as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Joining:
    """How a machine is to join; a name that is empty is the machine's own."""

    address: IPv4Address
    name: str = ""
    agent_port: int = 6001
    ib_interface: str = ""
    gpus: int | None = None
    gpu_model: str = ""


@dataclass(frozen=True)
class Changed:
    """A site file that is to be written, and the site that it describes."""

    text: str
    site: Site
    node: str


def ask(site: Site, address: IPv4Address, listen: Listener, *, state: Path = STATE) -> Machine:
    """Return what a machine says of itself; raises ProcessError where the controller does not reach it."""
    require_controller(site)
    hosts = {
        "all": {
            "hosts": {ASKED: inventory.connection(site, address, str(state))},
            "children": {INTERFACES: {"hosts": {ASKED: {}}}},
        }
    }
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    result = playbook.run(INTERFACES, hosts, state=state, listen=listen, publish=[FACTS], check=True)
    result.require_success()
    return _machine(result.published[ASKED][FACTS])


def joined(text: str, source: str, machine: Machine, joining: Joining) -> Changed:
    """Return the site file with one worker more.

    Raises InputError where the machine does not have the address, has no such interface, or the site has it already.
    """
    _require_address(machine, joining.address)
    node: dict[str, Any] = {
        "name": joining.name or machine.hostname,
        "address": str(joining.address),
        "roles": [NodeRole.WORKER.value],
        "agent_port": joining.agent_port,
        "release": machine.release,
    }
    if joining.ib_interface:
        node["ib_address"] = _ib_address(machine, joining.ib_interface)
    if joining.gpus is not None:
        node["gpus"] = {"count": joining.gpus} | ({"model": joining.gpu_model} if joining.gpu_model else {})
    changed = site_file_edit.with_node(text, source, node)
    return Changed(changed, load(parse(changed, source)), node["name"])


def left(text: str, source: str, name: str) -> Changed:
    """Return the site file without a worker; raises InputError where it has another role, too."""
    site = load(parse(text, source))
    node = next((each for each in site.nodes if each.name == name), None)
    if node is not None and (others := [role for role in node.roles if role is not NodeRole.WORKER]):
        raise InputError(
            f"{name} is {' and '.join(others)} of the site, too",
            where="NAME",
            hint="only a node that is a worker and nothing else leaves by this command",
        )
    changed = site_file_edit.without_node(text, source, name)
    return Changed(changed, load(parse(changed, source)), name)


def attach(site: Site, name: str, listen: Listener, *, state: Path = STATE) -> str:
    """Wait until the API has a node that is ready, 5 minutes at most, and return the mode that it is in.

    Raises UnavailableError that says how the node is, where it is not ready then.
    """
    hosts = inventory.build(site, version="", state=str(state))
    hosts["all"]["vars"]["nodes_joining"] = [name]
    hosts["all"]["children"][ATTACHMENT] = {"hosts": {site.master.name: {}}}
    result = playbook.run(ATTACHMENT, hosts, state=state, listen=listen, publish=[FOUND], check=True)
    result.require_success()
    found = result.published[site.master.name][FOUND]
    node = next(iter(found["nodes"]), None)
    if node is not None and node["state"] == "ready":
        return str(node["mode"])
    if found["error"]:
        why = f"the API does not say how it is: {found['error']}"
    elif node is None:
        why = "the API has heard nothing of its agent"
    else:
        why = f"it is {node['state']}{': ' + node['message'] if node['message'] else ''}"
    raise UnavailableError(
        f"Attach Error: {why}",
        where=name,
        hint=f"look there with `journalctl -u penstock-agent`; `penstock site deploy --limit {name}` tries again",
    )


def moved(text: str, source: str, machine: Machine, name: str, address: IPv4Address) -> Changed:
    """Return the site file with another machine for a worker, which has the release that the file says.

    Raises InputError where it has another role, too, the machine does not have the address, or runs another release.
    """
    left(text, source, name)
    _require_address(machine, address)
    changed = site_file_edit.with_address(text, source, name, str(address))
    site = load(parse(changed, source))
    release = next(node.release for node in site.nodes if node.name == name)
    if machine.release != release:
        raise InputError(
            f"{machine.hostname} runs {machine.release}, and {name} {release}",
            where="ADDRESS",
            hint=f"correct the release of {name} in {source} first",
        )
    return Changed(changed, site, name)


def detach(before: Site, after: Site, name: str, listen: Listener, *, gone: bool = False, state: Path = STATE) -> None:
    """Let a node take nothing new, and end its agent where nothing runs there.

    Raises ConflictError while sessions run on it, and ProcessError where it does not answer, unless it is `gone`.
    """
    require_controller(before)
    with alone(state) as held:
        run = partial(playbook.run, state=state, listen=listen, held=held)
        departure.close(after, state, run)
        if gone:
            return
        hosts = inventory.build(before, version="", state=str(state))
        hosts["all"]["children"][DETACHMENT] = {"hosts": {name: {}}}
        run(DETACHMENT, hosts, limit=[name]).require_success()


def _machine(facts: Mapping[str, Any]) -> Machine:
    # Ansible writes names of interfaces in other letters where they name its facts
    told = [each for each in facts.values() if isinstance(each, Mapping) and "device" in each]
    found = {each["device"]: _interface(each) for each in told if _lasts(each)}
    hostname = str(facts["ansible_hostname"]).lower()
    return Machine(hostname, facts["ansible_distribution_release"], [found[name] for name in sorted(found)])


def _lasts(facts: Mapping[str, Any]) -> bool:
    """Return whether an interface is none of those that come and go with containers, and not the loopback."""
    return facts.get("type") != "loopback" and not facts["device"].startswith("veth")


def _interface(facts: Mapping[str, Any]) -> Interface:
    """Return an interface from Ansible's facts; a speed of -1 or 0 says that the kernel does not know it."""
    first = facts.get("ipv4") or {}
    addresses = [each["address"] for each in (first, *facts.get("ipv4_secondaries", ())) if each.get("address")]
    speed = int(facts.get("speed") or 0)
    return Interface(
        facts["device"],
        facts.get("type", ""),
        facts.get("macaddress", ""),
        int(facts.get("mtu") or 0),
        speed if speed > 0 else None,
        bool(facts.get("active")),
        addresses,
    )


def _require_address(machine: Machine, address: IPv4Address) -> None:
    own = [each for interface in machine.interfaces for each in interface.addresses]
    if str(address) not in own:
        raise InputError(
            f"no interface of {machine.hostname} has the address {address}: others translate it",
            where="ADDRESS",
            hint=f"give one of its own: {', '.join(own)}",
        )


def _ib_address(machine: Machine, name: str) -> str:
    interface = next((each for each in machine.interfaces if each.name == name), None)
    if interface is None or not interface.addresses:
        with_address = [each.name for each in machine.interfaces if each.addresses]
        raise InputError(
            f"{machine.hostname} has no interface {name} with an address",
            where="--ib-interface",
            hint=f"name one of {', '.join(with_address)}",
        )
    return interface.addresses[0]
