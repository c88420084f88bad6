"""GPU shares of this node's containers: by which kind they are held, what each container was given, and changes of it.

What a container was given stands in its label at Docker. A change while it runs is written down in the container's
folder, for labels cannot change; the folder is on a tmpfs, like all that ends with the machine's run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from appliance.agent.shares import mountinfo
from appliance.gpu import enforcement, share_files, tmpfs_quota
from appliance.gpu.accelerators import Accelerator
from appliance.gpu.devices import DeviceShare, Gpus, Needs
from appliance.gpu.enforcement import Choice, Enforcer
from appliance.gpu.mps import Mps
from common.errors import ConflictError, InputError
from common.gpu.kinds import Enforcement
from common.gpu.share import MILLI, GpuShare, format_gpus
from common.messages import MAX_REASON
from common.protocol import (
    ContainerState,
    ContainerStatus,
    GpuDevice,
    NodeInfo,
)

log = structlog.get_logger()

RECORD = "shares.json"
_gpu_shares = TypeAdapter(list[GpuShare])


@dataclass
class HeldShares:
    """The shares of one container. `kind` holds those that are no MIG devices; `engine_id` is known once it runs.

    `warning` says by what it is over its share, `trouble` why it is not held as it should be, and `endless` since when
    a kernel of it has been running that may never end.
    """

    kind: Enforcement
    gpu_shares: Sequence[GpuShare]
    engine_id: str = ""
    warning: str = ""
    trouble: str = ""
    endless: str = ""


@dataclass(frozen=True)
class PreparedShares:
    """What a container gets for its shares, and the kind that holds them; None where it has none."""

    needs: Needs = field(default_factory=Needs)
    kind: Enforcement | None = None


class ShareManager:
    """All GPU shares of this node."""

    def __init__(
        self,
        gpus: Gpus,
        accelerators: Sequence[Accelerator],
        enforcers: Mapping[Enforcement, Enforcer],
        order: Sequence[Enforcement],
        folder: Path,
    ) -> None:
        """Choose the kind for the devices of each accelerator, by `order`; `folder` has one for each container."""
        self.folder = folder
        self.holdings: dict[str, HeldShares] = {}
        # changes of a container's shares, and its end
        self._lock = threading.Lock()
        self._gpus = gpus
        self._accelerators = {accelerator.name: accelerator for accelerator in accelerators}
        self._enforcers = enforcers
        self._chosen = {name: self._choose(name, order) for name in self._accelerators}
        self._active = {name: choice.kind for name, choice in self._chosen.items()}
        self._pending = ""
        self.devices: dict[str, GpuDevice] = {}
        self._describe_devices()

    def describe(self, node_info: NodeInfo) -> NodeInfo:
        """Return what a node tells of itself, with how its GPUs are held now."""
        devices = list(self.devices.values())
        return node_info.model_copy(
            update={
                "gpus": devices,
                "enforcement": Enforcement.weakest(device.enforcement for device in devices),
                "enforcement_pending": self._pending,
                "fractions": all(self._kind(device) is not None for device in devices),
            }
        )

    def check(self, gpu_shares: Sequence[GpuShare]) -> None:
        """Refuse shares that this node cannot hold; raises InputError. The devices are known to be of this node."""
        for position, share in enumerate(self._shares(gpu_shares)):
            if not share.is_whole and self._kind(share.device) is None:
                raise InputError(
                    f"GPU {share.device.uuid} cannot be shared: none of this node's kinds of enforcement holds a part",
                    where=f"gpus.{position}.milli",
                    hint="ask for whole GPUs, or let the order of the site's `gpu.enforcement` end with `none`",
                )
        for kind, shares in self._by_kind(self._kind_for(gpu_shares), gpu_shares).items():
            self._enforcers[kind].check(shares)

    def prepare(self, identity: str, gpu_shares: Sequence[GpuShare]) -> PreparedShares:
        """Make what a container needs for its shares and return it; raises PenstockError. It may block."""
        if not gpu_shares:
            return PreparedShares()
        kind = self._kind_for(gpu_shares)
        self.holdings[identity] = HeldShares(kind, gpu_shares)
        parts = []
        for name, accelerator in self._accelerators.items():
            own = [share.device for share in self._shares(gpu_shares) if share.device.accelerator == name]
            parts += [accelerator.needs(own)] if own else []
        for held_by, shares in self._by_kind(kind, gpu_shares).items():
            self._enforcers[held_by].prepare(identity, shares)
            parts.append(self._enforcers[held_by].needs(identity, shares))
        return PreparedShares(Needs.together(parts), kind)

    def adopt(self, identity: str, kind: Enforcement, gpu_shares: Sequence[GpuShare]) -> None:
        """Take up the shares of a container that ran before this agent did; a change that was written down counts."""
        if gpu_shares and identity not in self.holdings:
            self.holdings[identity] = HeldShares(kind, self._recorded(identity) or gpu_shares)

    def fence(self, identity: str, inspect: Callable[[str], Mapping[str, Any]]) -> None:
        """Hold a container that is made and not started yet, by kinds that can; raises PenstockError. It may block.

        `inspect` tells what Docker knows of a container.
        """
        if holding := self.holdings.get(identity):
            for kind, shares in self._by_kind(holding.kind, holding.gpu_shares).items():
                if self._enforcers[kind].fences:
                    self._enforcers[kind].fence(identity, shares, str(inspect(identity)["Id"]))

    def attach(self, identity: str, engine_id: str, pid: int) -> None:
        """Hold a running container to its limits; raises PenstockError where that fails. It may block."""
        if holding := self.holdings.get(identity):
            holding.engine_id, holding.trouble = engine_id, ""
            for kind, shares in self._by_kind(holding.kind, holding.gpu_shares).items():
                self._enforcers[kind].apply(identity, shares, pid)

    def detaches(self, identity: str) -> bool:
        """Return whether others may be hurt where processes of a container are killed that was not detached before."""
        holding = self.holdings.get(identity)
        return bool(holding and holding.engine_id and self._enforcers[holding.kind].detaches)

    def detach(self, identity: str) -> None:
        """Take their GPUs from the processes of a container; raises PenstockError. It may block."""
        if holding := self.holdings.get(identity):
            for kind, shares in self._by_kind(holding.kind, holding.gpu_shares).items():
                self._enforcers[kind].detach(shares, holding.engine_id)

    def verify(self, identity: str, pid: int) -> None:
        """Check that what holds the shares of a container is mounted where its programs look for it.

        `pid` is its first process. Raises UnavailableError. It may block.
        """
        if holding := self.holdings.get(identity):
            for kind, shares in self._by_kind(holding.kind, holding.gpu_shares).items():
                mountinfo.verify(self._enforcers[kind].needs(identity, shares).mounts, pid)

    def check_change(self, state: ContainerState, wanted: Sequence[GpuShare]) -> None:
        """Refuse other shares for a container that runs; raises InputError, and ConflictError where it has ended."""
        if sorted(share.uuid for share in wanted) != sorted(share.uuid for share in state.gpus):
            raise InputError(
                "these are not the GPUs that the container has",
                where="gpus",
                hint=f"name each once: {', '.join(share.uuid for share in state.gpus) or 'it has none'}",
            )
        if gone := [share.uuid for share in wanted if share.uuid not in self.devices]:
            raise InputError(
                f"this node has no GPU {', '.join(gone)} any more",
                where="gpus",
                hint="start the session again elsewhere",
            )
        before = {share.uuid: share.milli for share in state.gpus}
        changed = [share for share in wanted if share.milli != before[share.uuid]]
        for share in changed:
            if self.devices[share.uuid].parent:
                raise InputError(
                    f"{share.uuid} is a MIG device, which is given whole",
                    where="gpus",
                    hint="start the session again with a larger or smaller slice",
                )
        if changed:
            self.check(wanted)
            for kind, shares in self._by_kind(self._held(state.id).kind, wanted).items():
                self._enforcers[kind].check_change(shares)

    def set_shares(self, identity: str, gpu_shares: Sequence[GpuShare]) -> Sequence[GpuShare]:
        """Count other shares for a container from now on; return those that it had.

        Raises ConflictError where the container has ended.
        """
        holding = self._held(identity)
        before, holding.gpu_shares = holding.gpu_shares, gpu_shares
        return before

    def change(self, identity: str, pid: int) -> None:
        """Hold a container to its shares and write them down; raises PenstockError. It may block."""
        # a container that ends meanwhile must not find its folder made anew
        with self._lock:
            holding = self._held(identity)
            for kind, shares in self._by_kind(holding.kind, holding.gpu_shares).items():
                self._enforcers[kind].apply(identity, shares, pid)
            share_files.write(self.folder / identity / RECORD, _gpu_shares.dump_json(list(holding.gpu_shares)), 0o600)
        log.info("shares have changed", id=identity, gpus=[format_gpus(share.milli) for share in holding.gpu_shares])

    def dress(self, state: ContainerState) -> ContainerState:
        """Return a state with the shares that the container has now, how they are held, and what is wrong with them."""
        holding = self.holdings.get(state.id)
        if not holding:
            return state
        kinds = self._by_kind(holding.kind, holding.gpu_shares) or [holding.kind]
        update: dict[str, object] = {"gpus": list(holding.gpu_shares), "enforcement": Enforcement.weakest(kinds)}
        if state.status is ContainerStatus.RUNNING:
            update["warning"] = holding.warning or holding.trouble or holding.endless or state.warning
        return state.model_copy(update=update)

    def shares_of(self, identity: str) -> list[DeviceShare]:
        """Return the shares of a container."""
        holding = self.holdings.get(identity)
        return list(self._shares(holding.gpu_shares)) if holding else []

    def worry(self, identity: str, reason: str) -> None:
        """Keep why a container that goes on is not held as it should be, for its state to tell."""
        if holding := self.holdings.get(identity):
            holding.trouble = reason

    def release(self, identity: str) -> None:
        """Drop what was made for a container that has gone; nothing where there was nothing. It may block.

        What cannot be removed stands in the log: it must hold up neither the removal nor the start of the agent.
        """
        with self._lock:
            self.holdings.pop(identity, None)
            for kind, enforcer in self._enforcers.items():
                try:
                    enforcer.remove(identity)
                except Exception as error:
                    # whatever it was: the other kinds have something to remove, too
                    log.exception("what held a container stays", id=identity, kind=kind, reason=str(error))
            tmpfs_quota.remove_folder(self.folder / identity)

    def sweep(self, is_live: Callable[[str], bool]) -> None:
        """Drop what is left of containers that no longer live, those of earlier runs of the agent too. It may block."""
        left = {folder.name for folder in self.folder.iterdir()} if self.folder.is_dir() else set()
        for identity in sorted(left | set(self.holdings)):
            # asked for each anew: others may begin meanwhile
            if not is_live(identity):
                log.info("a container has gone; its shares are dropped", id=identity)
                self.release(identity)

    def switch_kinds(self, live: Iterable[str]) -> bool:
        """Switch to the chosen kinds where no living container is held by another; say what stands in the way.

        Returns whether that has changed anything that the node tells of itself.
        """
        before = self._active.copy(), self._pending
        held: dict[str, set[Enforcement]] = {}
        for identity in live:
            for share in self.shares_of(identity):
                if not share.device.parent:
                    held.setdefault(share.device.accelerator, set()).add(self.holdings[identity].kind)
        waits = []
        for name, choice in self._chosen.items():
            others = held.get(name, set()) - {choice.kind or Enforcement.NONE}
            active = min(others, key=list(Enforcement).index) if others else choice.kind
            if others:
                waits.append(
                    f"{choice.kind or 'no sharing'} follows {active} when the last session that {active} holds has gone"
                )
            if active is not self._active[name]:
                log.info("enforcement switches", accelerator=name, kind=active or "no sharing")
                self._active[name] = active
        self._pending = "; ".join(waits)[:MAX_REASON]
        self._describe_devices()
        return before != (self._active, self._pending)

    def tidy(self) -> None:
        """End what only a kind needs that this node no longer uses. It may block."""
        mps = self._enforcers.get(Enforcement.MPS)
        if isinstance(mps, Mps) and Enforcement.MPS not in self._active.values():
            mps.leave([device for device in self.devices.values() if not device.parent])

    def _held(self, identity: str) -> HeldShares:
        if (holding := self.holdings.get(identity)) is None:
            raise ConflictError(
                f"container {identity} has ended", where="id", hint="change the shares of one that runs"
            )
        return holding

    def _choose(self, name: str, order: Sequence[Enforcement]) -> Choice:
        accelerator = self._accelerators[name]
        devices = [device for device in self._gpus.devices if device.accelerator == name and not device.parent]
        if not devices:
            return Choice(Enforcement.NONE, {})
        # what nothing stands behind is accounted for, whatever the order says
        wanted = [Enforcement.NONE] if accelerator.kinds == {Enforcement.NONE} else order
        choice = enforcement.choose(wanted, self._enforcers, devices, accelerator.kinds)
        tried = {str(kind): probe.reason for kind, probe in choice.probes.items()}
        log.info("enforcement of GPU shares", accelerator=name, kind=choice.kind or "no sharing", **tried)
        return choice

    def _describe_devices(self) -> None:
        """Tell each device how its shares are held now."""
        self.devices = {
            device.uuid: device.model_copy(update={"enforcement": self._kind(device) or Enforcement.NONE})
            for device in self._gpus.devices
        }

    def _kind(self, device: GpuDevice) -> Enforcement | None:
        """Return how shares of a device are held, None where it cannot be shared."""
        return Enforcement.MIG if device.parent else self._active[device.accelerator]

    def _kind_for(self, gpu_shares: Sequence[GpuShare]) -> Enforcement:
        """Return the kind for a new container, without its MIG devices; `mig` where it has no others."""
        kinds = [self._kind(share.device) or Enforcement.NONE for share in self._shares(gpu_shares)]
        others = [kind for kind in kinds if kind is not Enforcement.MIG]
        return Enforcement.weakest(others) if others else Enforcement.MIG

    def _by_kind(self, kind: Enforcement, gpu_shares: Sequence[GpuShare]) -> dict[Enforcement, list[DeviceShare]]:
        found: dict[Enforcement, list[DeviceShare]] = {}
        for share in self._shares(gpu_shares):
            found.setdefault(Enforcement.MIG if share.device.parent else kind, []).append(share)
        return found

    def _shares(self, gpu_shares: Sequence[GpuShare]) -> Iterable[DeviceShare]:
        for share in gpu_shares:
            # a GPU that has gone since holds nobody
            if device := self.devices.get(share.uuid):
                yield DeviceShare(device, MILLI if device.parent else share.milli)

    def _recorded(self, identity: str) -> list[GpuShare] | None:
        try:
            return _gpu_shares.validate_json((self.folder / identity / RECORD).read_bytes())
        except (OSError, ValidationError):
            return None
