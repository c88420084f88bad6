"""The network interfaces of this node, as `ip` and the kernel show them, but for those that containers bring."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from appliance.agent.docker.blocking_calls import in_thread
from appliance.agent.docker.gang_network import BRIDGE_PREFIX, LINK_PREFIX, Command
from common import process
from common.errors import PenstockError
from common.interfaces import MAX_ADDRESSES, MAX_INTERFACES, Interface

log = structlog.get_logger()

INTERVAL_S = 30.0
"""So often they are looked at anew."""
COMMAND = ("ip", "-j", "address", "show")
_OF_CONTAINERS = re.compile(rf"docker\d+|docker_gwbridge|br-[0-9a-f]{{12}}|veth.*|({BRIDGE_PREFIX}|{LINK_PREFIX}).*")
"""The names of interfaces that the container engine and the agent make; a site has bridges whose names begin alike."""


class Interfaces:
    """The interfaces of this node as of the last look, in the kernel's order."""

    def __init__(self, run: Callable[[Command], str] = process.run, root: Path = Path("/")) -> None:
        """Look for the first time; `root` is where /sys is."""
        self._run = run
        self._root = root
        self.found: list[Interface] = []
        self._look()

    async def look(self, tell: Callable[[], None]) -> None:
        """Look again, and `tell` when something is not as it was."""
        before = self.found
        await in_thread(self._look)
        if self.found != before:
            tell()

    def _look(self) -> None:
        try:
            shown = json.loads(self._run(COMMAND))
            found = [self._interface(each) for each in shown if _lasts(each)]
        except (PenstockError, ValueError, LookupError, TypeError) as error:
            # what is known of them is not worth that the agent does not come up
            log.warning("the network interfaces cannot be listed", reason=str(error))
            return
        # the rest are parts of cards that virtual machines would have
        told = sorted(range(len(found)), key=lambda position: not found[position].addresses)[:MAX_INTERFACES]
        self.found = [found[position] for position in sorted(told)]

    def _interface(self, shown: Mapping[str, Any]) -> Interface:
        of_ip = [each for each in shown.get("addr_info", ()) if each.get("family") == "inet"]
        return Interface(
            name=shown["ifname"],
            addresses=[each["local"] for each in of_ip if each.get("scope") == "global"][:MAX_ADDRESSES],
            # interfaces without a carrier of their own, such as tunnels, do not know more
            up=shown.get("operstate") in ("UP", "UNKNOWN"),
            speed_mbps=self._speed(shown["ifname"]),
            mtu=shown.get("mtu", 0),
        )

    def _speed(self, name: str) -> int | None:
        try:
            speed = int((self._root / "sys/class/net" / name / "speed").read_text())
        except (OSError, ValueError):
            # the kernel refuses to read it of one that is down
            return None
        return speed if speed > 0 else None


def _lasts(shown: Mapping[str, Any]) -> bool:
    return shown.get("link_type") != "loopback" and not _OF_CONTAINERS.fullmatch(shown["ifname"])
