"""Amounts that each container of a request gets: completed where the request leaves them out, and checked to fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.groups.permissions import Groups
from api.resources.nodes import traits
from api.resources.nodes.fleet import Fleet
from api.resources.presets import service as presets
from api.resources.sessions import defaults, ways
from api.resources.sessions.schemas import SessionRequest
from api.resources.user_policies.service import Extra
from api.scheduler.snapshot import Workload
from api.settings import Settings
from common.errors import InputError
from common.gpu.kinds import Enforcement
from common.gpu.share import MILLI
from common.protocol import DEFAULT_SHM_MIB
from common.sentence import Sentence, halves


@dataclass(frozen=True)
class Amounts:
    """What one container has; 0 cores are no limit, and 0 GPUs none. `shm_mib` is part of the memory.

    Shares are held by `enforcement` or a stronger kind.
    """

    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    disk_mib: int
    enforcement: Enforcement


async def complete(
    db: AsyncSession,
    request: SessionRequest,
    most_memory: int | None,
    allowed: Groups,
    *,
    settings: Settings,
    fleet: Fleet,
) -> Amounts:
    """Complete what the request leaves out by its preset, then by its share of a node.

    Raises InputError for what the granularity forbids, and for shared memory that its memory does not hold.
    """
    preset = await presets.wanted(db, request.preset) if request.preset else None
    gpu_milli = request.gpu_milli if request.gpu_milli is not None else preset.gpu_milli if preset else None
    cpu_milli = request.cpu_milli if request.cpu_milli is not None else preset.cpu_milli if preset else 0
    memory_mib = request.memory_mib if request.memory_mib is not None else preset.memory_mib if preset else 0
    if gpu_milli is None:
        hint = Sentence("ask for some, or name a preset")
        raise InputError(Sentence("nothing says how many GPUs"), where="gpu_milli", hint=hint)
    presets.check_amounts(gpu_milli, cpu_milli, settings)
    if not memory_mib:
        nodes = defaults.fitting(fleet.nodes, _gpu_models(request, fleet), allowed)
        memory_mib = defaults.memory_mib(gpu_milli, cpu_milli, nodes, settings, most=most_memory)
    shm_mib = _shm_mib(request, preset.shm_mib if preset else DEFAULT_SHM_MIB, memory_mib)
    disk_mib = request.disk_mib or defaults.disk_mib(gpu_milli, cpu_milli, settings)
    enforcement = request.enforcement or (Enforcement(preset.enforcement) if preset else Enforcement.NONE)
    held = enforcement if gpu_milli else Enforcement.NONE
    return Amounts(gpu_milli, cpu_milli, memory_mib, shm_mib, disk_mib, held)


def _shm_mib(request: SessionRequest, otherwise: int, memory_mib: int) -> int:
    """Return the size of `/dev/shm`; raises InputError where the memory does not hold it."""
    if request.large_shm:
        return min(memory_mib, max(DEFAULT_SHM_MIB, memory_mib // 2))
    if request.shm_mib and request.shm_mib > memory_mib:
        raise InputError(
            Sentence(
                "{shared} MiB of shared memory are part of the memory, which is {memory} MiB",
                shared=request.shm_mib,
                memory=memory_mib,
            ),
            where="shm_mib",
            hint=Sentence("ask for more memory, or for less that is shared"),
        )
    return request.shm_mib or min(otherwise, memory_mib)


def summed(count: int, replicas: int, amounts: Amounts) -> Extra:
    """Return what so many sessions with so many containers come to, as policies count it."""
    every = count * replicas
    return Extra(count, every * amounts.gpu_milli, every * amounts.cpu_milli or None, every * amounts.memory_mib)


def check_fits(request: SessionRequest, amounts: Amounts, allowed: Groups, fleet: Fleet) -> None:
    """Refuse what no node could hold even if nothing ran and every node were open."""
    workload = Workload(
        id=request.name,
        project=request.project,
        submitted_at=0,
        replicas=request.replicas,
        gpu_milli=amounts.gpu_milli,
        cpu_milli=amounts.cpu_milli,
        memory_mib=amounts.memory_mib,
        groups=allowed[0],
        grouped_only=allowed[1],
        gpu_models=_gpu_models(request, fleet),
        within=ways.within(request),
        within_required=request.within_required or ways.is_in_one_island(request),
        enforcement=amounts.enforcement,
        traits=traits.needed(p2p=request.p2p, rdma=request.rdma),
    )
    # memory that only goes with the share, or with the cores, is not what was asked for
    asked = workload if request.memory_mib else replace(workload, memory_mib=0)
    never = fleet.never_fits(asked) or fleet.never_fits(workload)
    if never:
        reason, hint = halves(never)
        raise InputError(reason, where=_too_large(workload, fleet), hint=hint or Sentence("ask for less"))


def _too_large(workload: Workload, fleet: Fleet) -> str:
    """Return the field without which a workload that no node could hold would have a place."""
    for trait in workload.traits:
        if not fleet.never_fits(replace(workload, traits=tuple(each for each in workload.traits if each != trait))):
            return traits.FIELDS[trait]
    if workload.traits and not fleet.never_fits(replace(workload, traits=())):
        return traits.FIELDS[workload.traits[0]]
    if _has_no_model(workload, fleet):
        return "gpu_models"
    if not fleet.never_fits(replace(workload, memory_mib=0)):
        return "memory_mib"
    if not fleet.never_fits(replace(workload, cpu_milli=0, memory_mib=0)):
        return "cpu_milli"
    return "gpu_milli" if workload.gpu_milli else "cpu_milli"


def _has_no_model(workload: Workload, fleet: Fleet) -> bool:
    """Return whether not even the least of GPUs of its models can be had, and of others can."""
    least = replace(workload, replicas=1, gpu_milli=1, cpu_milli=0, memory_mib=0, traits=())
    parts = [replace(least, gpu_milli=milli) for milli in (1, MILLI)]
    return bool(workload.gpu_models and workload.gpu_milli) and all(
        fleet.never_fits(part) and not fleet.never_fits(replace(part, gpu_models=())) for part in parts
    )


def _gpu_models(request: SessionRequest, fleet: Fleet) -> tuple[str, ...]:
    return fleet.gpu_models_of(request.gpu_models) if request.gpu_models else ()
