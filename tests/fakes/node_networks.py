"""A node's Docker networks and VXLANs in memory, as far as the networks between containers need them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from appliance.agent.docker import gang_network
from appliance.agent.docker.gang_network import Command
from appliance.agent.docker.gang_network_manager import GangNetworkManager
from common.errors import ConflictError, PenstockError, ProcessError


class NodeNetworks:
    """What Docker and the kernel have. `mtu` is that of the way to other nodes; commands raise `refuses`.

    As the real one, the kernel makes a VXLAN that sends from an address which is none of its `addresses`. What is sent
    from one of these goes by that one of its `devices`, as where a site routes by sources; `mtus` are those of some.
    """

    def __init__(self, mtu: int = 1500) -> None:
        self.mtu = mtu
        self.addresses = {"192.0.2.1", "10.1.0.1"}
        self.devices: dict[str, str] = {}
        self.mtus: dict[str, int] = {}
        self.docker: dict[str, dict[str, Any]] = {}
        self.connected: dict[str, tuple[str, str]] = {}
        self.links: dict[str, dict[str, Any]] = {}
        self.sends_to: dict[str, list[str]] = {}
        self.in_use: set[str] = set()
        self.refuses: PenstockError | None = None

    def networks(self) -> dict[int, Mapping[str, Any]]:
        return {int(each["Labels"][gang_network.LABEL]): each for each in self.docker.values()}

    def make_network(self, arguments: Mapping[str, Any]) -> None:
        config = [{"Subnet": pool["Subnet"]} for pool in arguments["ipam"]["Config"]]
        self.docker[arguments["name"]] = {
            "Labels": arguments["labels"],
            "Options": arguments["options"],
            "IPAM": {"Config": config},
        }

    def remove_network(self, name: str) -> None:
        if name in self.in_use:
            raise ConflictError("it has active endpoints")
        self.docker.pop(name, None)

    def connect(self, identity: str, name: str, address: str) -> None:
        assert name in self.docker
        self.connected[identity] = (name, address)

    def run(self, command: Command) -> str:
        """Do what iproute2 would."""
        if self.refuses:
            raise self.refuses
        match command:
            case ("ip", "-j", "route", "get", _):
                return json.dumps([{"dev": "eth0"}])
            case ("ip", "-j", "route", "get", _, "from", address):
                if address not in self.addresses:
                    raise ProcessError("RTNETLINK answers: Network is unreachable")
                return json.dumps([{"dev": self.devices.get(address, "eth0")}])
            case ("ip", "-j", "address", "show", "to", address):
                told = [{"ifname": "eth0", "addr_info": [{}, {"family": "inet", "local": address}]}]
                return json.dumps(told if address in self.addresses else [{}])
            case ("ip", "-j", "link", "show", "dev", device):
                return json.dumps([{"ifname": device, "mtu": self.mtus.get(device, self.mtu)}])
            case ("ip", "-j", "-d", "link", "show", "type", "vxlan"):
                return json.dumps(list(self.links.values()))
            case ("ip", "link", "add", name, "mtu", mtu, *_, "id", number, "local", local, "dstport", port):
                data = {"id": int(number), "local": local, "port": int(port)}
                self.links[name] = {"ifname": name, "mtu": int(mtu), "linkinfo": {"info_data": data}}
                self.sends_to[name] = []
            case ("ip", "link", "set", name, "addrgenmode", "none", "master", bridge, "up"):
                self.links[name]["master"] = bridge
            case ("ip", "link", "del", name):
                del self.links[name], self.sends_to[name]
            case ("bridge", "-j", "fdb", "show", "dev", name):
                return json.dumps([{"mac": "00:00:00:00:00:00", "dst": peer} for peer in self.sends_to[name]])
            case ("bridge", "fdb", "append", _, "dev", name, "dst", peer):
                self.sends_to[name].append(peer)
            case ("bridge", "fdb", "del", _, "dev", name, "dst", peer):
                self.sends_to[name].remove(peer)
            case _:
                raise AssertionError(command)
        return ""


def gang_networks(node: NodeNetworks | None = None, *, mtu: int | None = None) -> GangNetworkManager:
    """Return the keeper of such networks on a node; `mtu` is what the site wants."""
    node = node or NodeNetworks()
    return GangNetworkManager(node, "192.0.2.1", node.run, mtu=mtu)
