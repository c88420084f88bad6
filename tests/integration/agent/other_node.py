"""Another node of the site, as far as agents and their containers see it over the network."""

from __future__ import annotations

import subprocess
import uuid

from appliance.agent.docker import gang_network
from common.protocol import GangNetwork


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class OtherNode:
    """Another node: a network namespace beside this machine, with an end of the VXLAN as an agent makes it."""

    here, there = "198.51.100.1", "198.51.100.2"

    def __init__(self) -> None:
        self.name = f"pt-{uuid.uuid4().hex[:8]}"
        ends = f"{self.name}a", f"{self.name}b"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", self.name)
        run("ip", "addr", "add", f"{self.here}/30", "dev", ends[0])
        run("ip", "link", "set", ends[0], "up")
        self.run("ip", "addr", "add", f"{self.there}/30", "dev", ends[1])
        self.run("ip", "link", "set", ends[1], "up")

    def run(self, *command: str) -> str:
        return run("ip", "netns", "exec", self.name, *command)

    def join(self, network: GangNetwork) -> None:
        """Give this node a bridge with the address of a container on it, and the way to the others."""
        bridge = gang_network.bridge_of(network.number)
        self.run("ip", "link", "add", bridge, "type", "bridge")
        for command in (*gang_network.link(network, self.there, 1450), *gang_network.fdb_changes(network, [])):
            self.run(*command)
        self.run("ip", "addr", "add", f"{network.address}/27", "dev", bridge)
        self.run("ip", "link", "set", bridge, "up")

    def answer(self, port: int, words: str) -> subprocess.Popen[bytes]:
        """Answer with a word on a port of every address."""
        command = ["ip", "netns", "exec", self.name, "/bin/busybox", "nc", "-ll", "-p", str(port), "-e", "echo", words]
        return subprocess.Popen(command)

    def ask(self, host: str, port: int) -> str:
        """Return what a host answers; empty where it does not."""
        return self.run("sh", "-c", f"/bin/busybox nc -w 2 {host} {port} < /dev/null || :").strip()
