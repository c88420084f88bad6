"""Pools of machines that the cluster's autoscaler makes larger: what they could become counts, too. Pure.

A pool is as many slots as it may have machines. A pod with GPUs of a slot is held to the pool and not to a machine, so
the cluster's scheduler may give it any, or have one made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from appliance.agent.kubernetes.capacity import Amount, Machine, Occupant
from common.settings.kubernetes import Pool

_SEPARATOR = ":"
"""No machine of a cluster has it in its name."""


def spread(
    machines: Collection[Machine], occupants: Iterable[Occupant], pools: Sequence[Pool]
) -> tuple[list[Machine], list[Occupant]]:
    """Return machines and occupants with the slots of pools in place of the machines that these have."""
    slots: dict[str, str] = {}
    found: list[Machine] = []
    for pool in pools:
        members = members_of(pool, machines)
        slots |= {member.name: _slot(pool, index) for index, member in enumerate(members)}
        found += [replace(member, name=slots[member.name]) for member in members]
        found += [_machine(pool, index) for index in range(len(members), pool.most)]
    found += [machine for machine in machines if machine.name not in slots]
    return found, [_moved(occupant, slots) for occupant in occupants]


def members_of(pool: Pool, machines: Iterable[Machine]) -> list[Machine]:
    """Return the machines that a pool has now, by name."""
    members = [machine for machine in machines if pool.machines.items() <= machine.labels.items()]
    return sorted(members, key=lambda machine: machine.name)


def selector_of(slot: str, pools: Iterable[Pool]) -> Mapping[str, str]:
    """Return the labels of the machines of the pool that a slot is of; none for a machine that is no slot."""
    name, separator, _ = slot.partition(_SEPARATOR)
    return next((pool.machines for pool in pools if separator and pool.name == name), {})


def growing(places: Collection[str], machines: Collection[Machine], pools: Iterable[Pool]) -> str:
    """Return the pool that may get another machine for a pod with these places; empty where none may."""
    names = {place.partition(_SEPARATOR)[0] for place in places}
    may = (pool for pool in pools if len(members_of(pool, machines)) < pool.most)
    return next((pool.name for pool in may if not names or pool.name in names), "")


def _slot(pool: Pool, index: int) -> str:
    return f"{pool.name}{_SEPARATOR}{index}"


def _machine(pool: Pool, index: int) -> Machine:
    amount = Amount(pool.cpu_milli, pool.memory_mib, pool.gpus)
    return Machine(_slot(pool, index), True, amount, pool.gpu_model, pool.gpu_memory_mib)


def _moved(occupant: Occupant, slots: Mapping[str, str]) -> Occupant:
    place = occupant.places[0] if occupant.places else ""
    if _SEPARATOR in place:
        return replace(occupant, machine=place.rpartition("/")[0])
    return replace(occupant, machine=slots.get(occupant.machine, occupant.machine))
