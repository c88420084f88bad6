"""Capacity of a cluster for sessions: its machines, less what others' pods ask for. Pure.

GPUs have names here although Kubernetes only counts them: the place `i` of a machine stands for any of its GPUs. A pod
that was given places is held to their machine, so what is counted is what Kubernetes gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.agent.kubernetes import quantity
from common.gpu.share import MAX_DEVICES
from common.protocol import GpuDevice
from common.settings.pod_template import Toleration

Object = Mapping[str, Any]
"""An object of Kubernetes as its interface writes it."""

LONGEST_NAME = 100
FINAL_PHASES = ("Succeeded", "Failed")
_MODEL = "gpu.product"
_MEMORY = "gpu.memory"


@dataclass(frozen=True, slots=True)
class Amount:
    """Thousandths of cores, MiB of memory, and GPUs."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return both together."""
        return Amount(self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        """Return what is left, which may be below 0."""
        return Amount(self.cpu_milli - other.cpu_milli, self.memory_mib - other.memory_mib, self.gpus - other.gpus)

    def __or__(self, other: Amount) -> Amount:
        """Return the larger of both, each by itself."""
        return Amount(
            max(self.cpu_milli, other.cpu_milli), max(self.memory_mib, other.memory_mib), max(self.gpus, other.gpus)
        )


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster. `open` says whether it takes new pods; `amount` is what it has for pods in all.

    Of one that is not `ready` nothing is heard, or it says so itself.
    """

    name: str
    open: bool
    amount: Amount
    model: str = "GPU"
    gpu_memory_mib: int = 0
    os: str = ""
    ready: bool = True

    def place(self, index: int) -> str:
        """Return the name of one of its places for GPUs, the same after every restart."""
        name = self.name if len(self.name) <= LONGEST_NAME else hashlib.sha256(self.name.encode()).hexdigest()
        return f"{name}/{index}"


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that holds part of a machine; `places` are those that it was given, of pods that are ours."""

    machine: str
    amount: Amount
    ours: bool = False
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Capacity:
    """What sessions may use in all, what they hold included. `home` leads from each place to its machine."""

    cpu_milli: int
    memory_mib: int
    devices: Sequence[GpuDevice]
    home: Mapping[str, str]
    left_out: int
    largest: Amount


def machine_of(node: Object, resource: str, tolerations: Collection[Toleration] = ()) -> Machine:
    """Return what a node of the cluster is; `resource` is how its GPUs are asked for (`nvidia.com/gpu`).

    Taints that the `tolerations` meet do not keep pods away from it.
    """
    allocatable = node["status"].get("allocatable", {})
    labels = node["metadata"].get("labels", {})
    vendor = resource.partition("/")[0]
    return Machine(
        name=node["metadata"]["name"],
        open=_is_open(node, resource, tolerations),
        ready=_is_ready(node),
        amount=Amount(
            quantity.milli(allocatable.get("cpu", "0")),
            quantity.mib(allocatable.get("memory", "0")),
            int(quantity.parse(allocatable.get(resource, "0"))),
        ),
        model=labels.get(f"{vendor}/{_MODEL}", "GPU"),
        gpu_memory_mib=_number(labels.get(f"{vendor}/{_MEMORY}", "0")),
        os=node["status"].get("nodeInfo", {}).get("osImage", ""),
    )


def asked_by(pod: Object, resource: str) -> Amount:
    """Return what a pod asks for: its containers together, or the one that prepares them where that asks for more."""
    together = sum((asked_for(container, resource) for container in pod["spec"]["containers"]), NOTHING)
    aside = peak = NOTHING
    for container in pod["spec"].get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            aside += asked_for(container, resource)
        peak |= aside + asked_for(container, resource) if container.get("restartPolicy") != "Always" else aside
    return ((together + aside) | peak) + _amount(pod["spec"].get("overhead", {}), resource)


def measure(machines: Collection[Machine], occupants: Iterable[Occupant], limit: int = MAX_DEVICES) -> Capacity:
    """Return what is there for sessions; of more GPUs than `limit` the last ones are left out.

    What sessions hold stays part of it even on a machine that takes no new pods, so that it can never hold more than
    there is.
    """
    ours: dict[str, Amount] = {}
    others: dict[str, Amount] = {}
    held: set[str] = set()
    for occupant in occupants:
        group = ours if occupant.ours else others
        group[occupant.machine] = group.get(occupant.machine, NOTHING) + occupant.amount
        held.update(occupant.places)
    total = largest = NOTHING
    found: list[GpuDevice] = []
    home: dict[str, str] = {}
    number = 0
    for island, machine in enumerate(sorted(machines, key=lambda item: item.name)):
        free = machine.amount - others.get(machine.name, NOTHING) if machine.open else NOTHING
        total += (free | ours.get(machine.name, NOTHING)) | NOTHING
        largest |= machine.amount if machine.open else NOTHING
        places = [machine.place(index) for index in range(machine.amount.gpus)]
        spare = free.gpus - sum(place in held for place in places)
        for index, place in enumerate(places):
            if place not in held:
                spare -= 1
            if place in held or spare >= 0:
                home[place] = machine.name
                found.append(_device(machine, number + index, place, island))
        number += len(places)
    devices = _within(found, held, limit)
    return Capacity(total.cpu_milli, total.memory_mib, devices, home, len(found) - len(devices), largest)


def _device(machine: Machine, index: int, place: str, island: int) -> GpuDevice:
    return GpuDevice(index=index, uuid=place, model=machine.model, memory_mib=machine.gpu_memory_mib, island=island)


def _within(devices: Sequence[GpuDevice], held: Collection[str], limit: int) -> list[GpuDevice]:
    """Return no more devices than the limit: those that are held before those that are free, in their order."""
    room = limit - sum(device.uuid in held for device in devices)
    kept = []
    for device in devices:
        if device.uuid in held or room > 0:
            kept.append(device)
            room -= device.uuid not in held
    return kept


def _is_open(node: Object, resource: str, tolerations: Collection[Toleration]) -> bool:
    # every pod of ours that asks for GPUs may go where only those may go
    barred = [
        taint
        for taint in node["spec"].get("taints", [])
        if taint["effect"] != "PreferNoSchedule"
        and taint["key"] != resource
        and not any(item.tolerates(taint["key"], taint.get("value", ""), taint["effect"]) for item in tolerations)
    ]
    return _is_ready(node) and not barred and not node["spec"].get("unschedulable", False)


def _is_ready(node: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", [])
    )


def asked_for(container: Object, resource: str) -> Amount:
    """Return what one container asks for."""
    resources = container.get("resources", {})
    return _amount({**resources.get("limits", {}), **resources.get("requests", {})}, resource)


def _amount(asked: Mapping[str, str], resource: str) -> Amount:
    return Amount(
        quantity.milli(asked.get("cpu", "0"), up=True),
        quantity.mib(asked.get("memory", "0"), up=True),
        int(quantity.parse(asked.get(resource, "0"))),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
