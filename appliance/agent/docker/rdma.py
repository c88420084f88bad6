"""InfiniBand of this node, by what the kernel shows of it below /sys, and what a container needs to use it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from appliance.agent.docker.blocking_calls import in_thread
from appliance.gpu.devices import Needs
from common.errors import UnavailableError
from common.rdma import INFINIBAND, MAX_HCAS, MIN_GBPS, Hca

INTERVAL_S = 30.0
"""So often the ports are looked at anew: a cable is pulled seldom."""
_MANAGER = "rdma_cm"
"""The device by which connections are made; libraries can do without."""
_NODE = re.compile(r"node(\d+)")


class MissingRdmaError(UnavailableError):
    """Sessions cannot use the InfiniBand of this node now, and may on another one, or later."""


class Rdma:
    """The HCAs of this node. `hcas` and `missing`, why sessions cannot use them, are as of the last look."""

    def __init__(
        self, address: str, wanted: Sequence[str], buses: Mapping[int, str], memlock: int = -1, root: Path = Path("/")
    ) -> None:
        """Look for the first time. `address` is the site's for this node on InfiniBand, `wanted` the HCAs that sessions
        use (none: all that are fit), `buses` leads from the index of a GPU to where it is on the PCI bus. `memlock` is
        how many bytes a container may lock, -1 without limit; `root` is where /sys and /dev are.
        """
        self._address = address
        self._wanted = frozenset(wanted)
        self._buses = buses
        self._memlock = memlock
        self._root = root
        self.hcas: list[Hca] = []
        self.missing = ""
        self._look()

    async def look(self, tell: Callable[[], None]) -> None:
        """Look again, and `tell` when something is not as it was."""
        before = self.hcas, self.missing
        await in_thread(self._look)
        if (self.hcas, self.missing) != before:
            tell()

    def needs(self) -> Needs:
        """Return the devices of the HCAs that sessions use, and the environment that names these to NCCL.

        Raises MissingRdmaError where sessions cannot use any.
        """
        if self.missing:
            reason = f"this node has no RDMA: {self.missing}"
            raise MissingRdmaError(reason, where="rdma", hint="submit it without RDMA")
        used = self._used()
        folder = self._root / "dev/infiniband"
        devices = [f"/dev/infiniband/{verbs}" for name in used for verbs in self._verbs(name.partition(":")[0])]
        managers = [f"/dev/infiniband/{_MANAGER}"] if (folder / _MANAGER).exists() else []
        # with `=` a name is no prefix: mlx5_1 is not mlx5_10
        return Needs(devices=(*dict.fromkeys(devices), *managers), environment={"NCCL_IB_HCA": f"={','.join(used)}"})

    def _look(self) -> None:
        ports = (self._root / "sys/class/infiniband").glob("*/ports/*")
        found = sorted(ports, key=lambda port: _in_order(f"{port.parents[1].name}:{port.name}"))
        self.hcas = [self._hca(port) for port in found[:MAX_HCAS]]
        self.missing = next(self._reasons(), "")

    def _used(self) -> list[str]:
        return [hca.name for hca in self.hcas if hca.is_usable and self._is_wanted(hca)]

    def _is_wanted(self, hca: Hca) -> bool:
        return not self._wanted or bool(self._wanted & {hca.name, hca.name.partition(":")[0]})

    def _reasons(self) -> Iterator[str]:
        if not self.hcas:
            yield "it has no InfiniBand HCA"
        if not self._address:
            yield "ib_address is not set for it in the site file"
        wanted = [hca for hca in self.hcas if self._is_wanted(hca)]
        if not wanted:
            yield f"it has none of the HCAs that the site file names: {', '.join(sorted(self._wanted))}"
        if not self._used():
            yield f"no port of it is fit ({', '.join(map(_unfit, wanted))})"
        if unready := [name for name in self._used() if not self._verbs(name.partition(":")[0])]:
            yield f"{unready[0]} has no device below /dev/infiniband: the module ib_uverbs is not loaded"
        if self._memlock != -1:
            yield f"its sessions may lock no more than {self._memlock} bytes of memory"

    def _hca(self, port: Path) -> Hca:
        device = port.parents[1]
        node = _number(_text(device / "device/numa_node"))
        # "4: ACTIVE" and "100 Gb/sec (4X EDR)", as the kernel's Documentation/ABI has them
        state, rate = _text(port / "state"), _text(port / "rate")
        numa_node = None if node is None or node < 0 else node
        return Hca(
            name=f"{device.name}:{port.name}",
            rate_gbps=_gbps(rate),
            link_layer=_text(port / "link_layer"),
            state=state.partition(":")[2].strip(),
            numa_node=numa_node,
            distances={} if numa_node is None else dict(self._distances(numa_node)),
        )

    def _distances(self, numa_node: int) -> Iterator[tuple[int, int]]:
        nodes = self._root / "sys/devices/system/node"
        # the distances are in the order of the nodes that are there, whose numbers may have gaps
        order = sorted(int(found[1]) for path in nodes.glob("node*") if (found := _NODE.fullmatch(path.name)))
        said = _text(nodes / f"node{numa_node}" / "distance").split()
        far = dict(zip(order, map(_number, said), strict=False))
        for index, bus in self._buses.items():
            of_gpu = _number(_text(self._root / "sys/bus/pci/devices" / bus_name(bus) / "numa_node"))
            if of_gpu is not None and (distance := far.get(of_gpu)) is not None:
                yield index, distance

    def _verbs(self, device: str) -> list[str]:
        """Return the devices by which programs reach an HCA, where they are there."""
        known = (self._root / "sys/class/infiniband" / device / "device/infiniband_verbs").glob("uverbs*")
        return sorted(path.name for path in known if (self._root / "dev/infiniband" / path.name).exists())


def bus_name(bus: str) -> str:
    """Return where the kernel has a device of the PCI bus: NVML writes `00000000:1C:00.0` for its `0000:1c:00.0`."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:].zfill(4)}:{rest}"


def _unfit(hca: Hca) -> str:
    if hca.link_layer != INFINIBAND:
        return f"{hca.name} is {hca.link_layer or 'of no known kind'}, not InfiniBand"
    if hca.rate_gbps < MIN_GBPS:
        return f"{hca.name} has {hca.rate_gbps:g} of at least {MIN_GBPS} Gb/s"
    return f"{hca.name} is {hca.state or 'in no known state'}"


def _in_order(name: str) -> tuple[str | int, ...]:
    """Return by what mlx5_2 comes before mlx5_10."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def _gbps(rate: str) -> float:
    found = re.match(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec", rate)
    return float(found[1]) if found else 0.0


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        # a port of a device that is going just now
        return ""
