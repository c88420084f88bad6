"""A look at the InfiniBand links of a node, by what the kernel shows of them; a node without any has no check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.checks import Check, CheckState
from common.settings.health import HealthSettings

DEVICES = Path("/sys/class/infiniband")
ACTIVE, UP = 4, 5
"""How the kernel numbers the states of a link that carries data, and of a port with a link."""
COUNTERS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
)
HINT = "look at `ibstat`, the cable and the subnet manager"


class FabricLook:
    """Looks at each link, and remembers its errors from one look to the next."""

    def __init__(self, settings: HealthSettings, devices: Path = DEVICES) -> None:
        """Start without a look before."""
        self._settings = settings
        self._devices = devices
        self._before: dict[str, int] = {}

    def look(self) -> list[Check]:
        """Return the checks of all links."""
        ports = {f"{port.parents[1].name}:{port.name}": port for port in sorted(self._devices.glob("*/ports/*"))}
        gone = [_link(link, ["it is gone from the bus"]) for link in self._before if link not in ports]
        return [check for link, port in ports.items() for check in self._of(link, port)] + gone

    def _of(self, link: str, port: Path) -> list[Check]:
        state, physical, rate = (_text(port / name) for name in ("state", "phys_state", "rate"))
        gbps = float(rate.split()[0]) if rate else 0.0
        problems = [] if _number(state) == ACTIVE and _number(physical) == UP else [f"{state}, {physical}"]
        if gbps < self._settings.health_fabric_gbps:
            problems.append(f"{gbps:g} Gb/s, not {self._settings.health_fabric_gbps}")
        errors = sum(int(_text(port / "counters" / name) or 0) for name in COUNTERS)
        more = errors - self._before.get(link, errors)
        self._before[link] = errors
        bad = more > self._settings.health_fabric_errors
        said, hint = f"{more} errors since the last look", HINT if bad else ""
        kind = CheckState.WARN if bad else CheckState.OK
        good = f"{state.partition(': ')[2]}, {rate}"
        return [
            _link(link, problems, good),
            Check("fabric.errors", "InfiniBand link is without errors", kind, said if bad else "no more", hint, link),
        ]


def _link(link: str, problems: Sequence[str], good: str = "") -> Check:
    said = "; ".join(problems) or good
    return Check.of("fabric.link", "InfiniBand link is up", ok=not problems, evidence=said, hint=HINT, subject=link)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        # a port that does not count, or that is going just now
        return ""


def _number(state: str) -> int:
    number = state.partition(":")[0]
    return int(number) if number.isdigit() else 0
