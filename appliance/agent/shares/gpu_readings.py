"""Readings of GPUs: which container uses how much of which now, by NVML's processes, told apart by their cgroups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from appliance.agent.shares.share_manager import HeldShares, ShareManager
from appliance.gpu import cgroups
from appliance.gpu.telemetry import Telemetry


@dataclass(frozen=True)
class Reading:
    """What one container has on one GPU: memory in bytes, and how many processes."""

    memory_bytes: int = 0
    processes: int = 0


class GpuReadings:
    """Reads what the containers of this node use."""

    def __init__(
        self,
        shares: ShareManager,
        telemetry: Telemetry,
        container_of: Callable[[int], str | None] = cgroups.container_of,
    ) -> None:
        """Read by NVML; `container_of` tells the container engine's id of the container that a process is in."""
        self._shares = shares
        self._telemetry = telemetry
        self._container_of = container_of

    def memory(self) -> dict[str, dict[str, Reading]]:
        """Return what each container has on each of its GPUs, by their ids; GPUs that nobody can read are left out.

        It may block.
        """
        found: dict[str, dict[str, Reading]] = {}
        for uuid in self._real_devices():
            used = self._telemetry.memory(uuid)
            if used is None:
                continue
            by_container = self._by_container(used)
            for identity in self._on(uuid):
                parts = by_container.get(identity, [])
                found.setdefault(identity, {})[uuid] = Reading(sum(parts), len(parts))
        return found

    def busy(self, uuid: str, since_us: int) -> dict[str, int] | None:
        """Return the permille of a GPU's time that each container used since a time of the wall clock, in µs.

        None where nobody can tell. It may block.
        """
        used = self._telemetry.busy(uuid, since_us)
        if used is None:
            return None
        return {identity: min(sum(parts), 1000) for identity, parts in self._by_container(used).items()}

    def _by_container(self, values: Mapping[int, int]) -> dict[str, list[int]]:
        names = {holding.engine_id: name for name, holding in self._holdings() if holding.engine_id}
        found: dict[str, list[int]] = {}
        for pid, value in values.items():
            engine_id = self._container_of(pid)
            if engine_id in names:
                found.setdefault(names[engine_id], []).append(value)
        return found

    def _real_devices(self) -> Iterable[str]:
        used = {share.uuid for _, holding in self._holdings() for share in holding.gpu_shares}
        return [uuid for uuid in sorted(used) if uuid in self._shares.devices and not self._is_simulated(uuid)]

    def _is_simulated(self, uuid: str) -> bool:
        return self._shares.devices[uuid].simulated

    def _on(self, uuid: str) -> Iterable[str]:
        return [name for name, holding in self._holdings() if uuid in (share.uuid for share in holding.gpu_shares)]

    def _holdings(self) -> list[tuple[str, HeldShares]]:
        return list(self._shares.holdings.items())
