"""A node's packet rules in memory, as far as the policy of sessions asks for them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from appliance.agent.docker import egress_rules
from appliance.agent.docker.egress_policy import EgressPolicy
from common.errors import PenstockError, ProcessError


class PacketRules:
    """What the kernel has, empty for none; `installs` counts changes, and commands raise `refuses`."""

    def __init__(self) -> None:
        self.table = ""
        self.installs = 0
        self.refuses: PenstockError | None = None

    def run(self, command: Sequence[str], *, stdin: str = "") -> str:
        """Do what nftables would; it shows a table in words of its own."""
        if self.refuses:
            raise self.refuses
        if command == egress_rules.INSTALL:
            self.table, self.installs = stdin, self.installs + 1
            return ""
        assert command == egress_rules.LOOK, command
        if not self.table:
            raise ProcessError("No such file or directory")
        return f"shown: {self.table}"


def bridges(folder: Path, value: str = "1") -> Path:
    """Return the kernel's settings of bridges, which all have one value."""
    for name in ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables"):
        (folder / name).write_text(f"{value}\n")
    return folder


def kept() -> EgressPolicy:
    """Return the policy of a node that keeps sessions apart."""
    with tempfile.TemporaryDirectory() as folder:
        policy = EgressPolicy(lambda: "docker0", [], list, run=PacketRules().run, bridges=bridges(Path(folder)))
        policy.keep()
    return policy
