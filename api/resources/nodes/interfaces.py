"""The network interface of a node by which its containers meet those of other nodes, as an administrator chose it."""

from __future__ import annotations

from api.tables.nodes import Node
from common.errors import InputError
from common.sentence import Sentence, Several


def address_of(node: Node) -> str:
    """Return the address of the interface that was chosen; empty where none was, or where it has none now."""
    found = (each["addresses"] for each in node.interfaces if node.interface and each["name"] == node.interface)
    return next((addresses[0] for addresses in found if addresses), "")


def check(node: Node, interface: str) -> str:
    """Return the address of an interface; raises InputError where it has none, as far as the node's agent has told."""
    told = {each["name"]: each["addresses"] for each in node.interfaces}
    if addresses := told.get(interface):
        return str(addresses[0])
    fit = [f"{name} ({addresses[0]})" for name, addresses in told.items() if addresses]
    said = {"node": node.name, "interface": interface}
    raise InputError(
        Sentence("{node}: {interface} has no IPv4 address there", **said)
        if interface in told
        else Sentence("{node}: {interface} is no network interface of it", **said),
        where="interface",
        hint=Sentence("choose one of {names}", names=Several(fit))
        if fit
        else Sentence("its agent has told of none with an address: is it up to date?"),
    )
