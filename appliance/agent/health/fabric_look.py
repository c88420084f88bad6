"""A look at the links of a node's HCAs, InfiniBand and RoCE, by what the kernel shows; a node without any has no check.

Sessions go by InfiniBand alone: a link of RoCE warns and closes no node, and one that nobody has plugged in is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.checks import Check, CheckState
from common.rdma import INFINIBAND
from common.settings.health import HealthSettings

DEVICES = Path("/sys/class/infiniband")
ACTIVE, UP = 4, 5
"""How the kernel numbers the states of a link that carries data, and of a port with a link."""
COUNTERS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
)
HINT = "look at `ibstat`, the cable and the subnet manager"
HINT_ROCE = "look at `rdma link`, the cable and the switch"


class FabricLook:
    """Looks at each link, and remembers its errors from one look to the next."""

    def __init__(self, settings: HealthSettings, devices: Path = DEVICES) -> None:
        """Start without a look before."""
        self._settings = settings
        self._devices = devices
        self._before: dict[str, int] = {}
        self._roce: set[str] = set()

    def look(self) -> list[Check]:
        """Return the checks of all links."""
        ports = {f"{port.parents[1].name}:{port.name}": port for port in sorted(self._devices.glob("*/ports/*"))}
        gone = [self._link(link, ["it is gone from the bus"]) for link in self._before if link not in ports]
        return [check for link, port in ports.items() for check in self._of(link, port)] + gone

    def _of(self, link: str, port: Path) -> list[Check]:
        state, physical, rate = (_text(port / name) for name in ("state", "phys_state", "rate"))
        gbps = float(rate.split()[0]) if rate else 0.0
        problems = [] if _number(state) == ACTIVE and _number(physical) == UP else [f"{state}, {physical}"]
        if (_text(port / "link_layer") or INFINIBAND) == INFINIBAND:
            self._roce.discard(link)
        elif problems and link not in self._before:
            return []
        else:
            self._roce.add(link)
        if gbps < self._settings.health_fabric_gbps and link not in self._roce:
            problems.append(f"{gbps:g} Gb/s, not {self._settings.health_fabric_gbps}")
        errors = sum(int(_text(port / "counters" / name) or 0) for name in COUNTERS)
        more = errors - self._before.get(link, errors)
        self._before[link] = errors
        bad = more > self._settings.health_fabric_errors
        said, hint = f"{more} errors since the last look", self._hint(link) if bad else ""
        kind = CheckState.WARN if bad else CheckState.OK
        good = f"{state.partition(': ')[2]}, {rate}"
        name = f"{self._kind(link)} link is without errors"
        return [
            self._link(link, problems, good),
            Check("fabric.errors", name, kind, said if bad else "no more", hint, link),
        ]

    def _kind(self, link: str) -> str:
        return "RoCE" if link in self._roce else INFINIBAND

    def _hint(self, link: str) -> str:
        return HINT_ROCE if link in self._roce else HINT

    def _link(self, link: str, problems: Sequence[str], good: str = "") -> Check:
        bad = CheckState.WARN if link in self._roce else CheckState.FAIL
        state, hint = (bad, self._hint(link)) if problems else (CheckState.OK, "")
        said = "; ".join(problems) or good
        return Check("fabric.link", f"{self._kind(link)} link is up", state, said, hint, link)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        # a port that does not count, or that is going just now
        return ""


def _number(state: str) -> int:
    number = state.partition(":")[0]
    return int(number) if number.isdigit() else 0
