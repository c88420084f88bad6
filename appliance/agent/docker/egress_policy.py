"""The policy of what sessions may reach, as packet rules of this node: put in place, looked after, put back.

The rules stay when the agent ends, and go with a restart of the machine, which no container survives. A node that
cannot keep them starts nothing, and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Protocol

import structlog

from appliance.agent.docker import egress_rules
from appliance.agent.docker.blocking_calls import in_thread
from common import process
from common.egress import Destination
from common.errors import ConflictError, PenstockError, UnavailableError

log = structlog.get_logger()

INTERVAL_S = 5.0
"""How long rules that somebody took away are missing at most."""
BRIDGES = Path("/proc/sys/net/bridge")
"""Where the kernel says whether frames between containers of one bridge come before the rules."""
_FRAMES = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables")


class Run(Protocol):
    """Runs a program to its end; raises PenstockError."""

    def __call__(self, command: Sequence[str], *, stdin: str = "") -> str:
        """Return what it printed."""


class EgressPolicy:
    """The policy of this node. `reason` says why they are not kept, and is empty while they are."""

    def __init__(
        self,
        bridge: Callable[[], str],
        opened: Sequence[Destination],
        nodes: Callable[[], Sequence[IPv4Address]],
        *,
        run: Run = process.run,
        bridges: Path = BRIDGES,
    ) -> None:
        """Prepare; `bridge` tells on which one all containers are, `nodes` those of the site; both may raise."""
        self.reason = "the packet rules of sessions are not in place yet"
        self._bridge = bridge
        self._opened = opened
        self._nodes = nodes
        self._run = run
        self._bridges = bridges
        self._name = ""
        self._wanted = ""
        self._installed = ""

    async def run(self, tell: Callable[[], None]) -> None:
        """Look after the rules for ever, and `tell` when the reason is another one."""
        while True:
            before = self.reason
            await in_thread(self.keep)
            if self.reason != before:
                tell()
            await asyncio.sleep(INTERVAL_S)

    def keep(self) -> None:
        """Put the rules in place unless they are there; what keeps them away is the `reason` from then on."""
        before = self.reason
        try:
            self._pass_frames()
            self._name = self._name or self._bridge()
            self._install()
        except PenstockError as error:
            self.reason = f"sessions cannot be kept apart: {' '.join(error.problems[0].reason.split())}"
        else:
            self.reason = ""
        if self.reason != before:
            if self.reason:
                log.error("nothing is started on this node", reason=self.reason)
            else:
                log.info("sessions are held to what they may reach", bridge=self._name)

    def check(self) -> None:
        """Refuse to start anything while the rules are not kept; raises ConflictError, as they may be again."""
        if self.reason:
            raise ConflictError(self.reason, where="node", hint="see the journal of the node's agent")

    def _install(self) -> None:
        wanted, shown = egress_rules.table(self._name, self._opened, self._nodes()), self._shown()
        held = bool(shown) and shown == self._installed
        if held and wanted == self._wanted:
            return
        if self._installed and not held:
            log.warning("the packet rules of sessions were changed, and are put back")
        self._run(egress_rules.INSTALL, stdin=wanted)
        self._wanted, self._installed = wanted, self._shown()

    def _shown(self) -> str:
        try:
            return self._run(egress_rules.LOOK)
        except UnavailableError:
            raise
        except PenstockError:
            # there is none
            return ""

    def _pass_frames(self) -> None:
        """Let frames that a bridge passes between its containers come before the rules, too."""
        if not self._bridges.is_dir():
            self._run(("modprobe", "br_netfilter"))
        for name in _FRAMES:
            path = self._bridges / name
            try:
                if path.read_text().strip() != "1":
                    path.write_text("1")
            except OSError as error:
                raise UnavailableError(
                    f"{path} cannot be 1: {error.strerror}", where=str(path), hint="load the module br_netfilter"
                ) from error
