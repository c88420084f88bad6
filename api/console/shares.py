"""GPU shares as a slider offers them: the site's steps up to one GPU, then whole GPUs, as far as they are accepted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.resources.groups import service as groups
from api.resources.groups.permissions import Groups
from api.resources.projects import service as projects
from api.resources.sessions.submission import SubmissionContext
from api.resources.user_policies import service as user_policies
from api.scheduler.snapshot import Workload
from api.settings import Settings
from api.tables.projects import Project
from api.tables.sessions import Kind
from common.errors import InputError
from common.gpu.share import MAX_GPUS, MILLI


def steps(settings: Settings) -> list[int]:
    """Return the shares that a container may have, in milli-GPU, without none at all."""
    step = settings.granularity.step_milli
    return [*range(step, MILLI, step), *range(MILLI, MAX_GPUS * MILLI + 1, MILLI)]


async def offered(
    db: AsyncSession, known: Sequence[Project], caller: Identity, context: SubmissionContext
) -> list[int]:
    """Return the steps that a session of one container may ask for in at least one of some projects of the caller.

    Nodes, limits of projects and the caller's policy are asked as on submission; what waits is offered.
    """
    await context.fleet.refresh(db)
    left = await user_policies.left_milli(db, caller.id)
    places = _places(known, caller, context)
    every = [milli for milli in steps(context.settings) if left is None or milli <= left]
    found: list[int] = []
    # who gets so many parts of a GPU, or whole ones, gets fewer, too
    for some in ([milli for milli in every if milli < MILLI], [milli for milli in every if milli >= MILLI]):
        for milli in some:
            if not await _is_accepted(db, milli, places, context):
                break
            found.append(milli)
    return found


def _places(
    known: Sequence[Project], caller: Identity, context: SubmissionContext
) -> dict[Groups, list[tuple[Project, bool]]]:
    """Return which projects may use which groups of nodes, and whether for work that can be reclaimed."""
    places: dict[Groups, list[tuple[Project, bool]]] = {}
    for project in known:
        for kind in Kind:
            try:
                allowed = groups.allowed(context.fleet.permissions, caller.id, project, kind)
            except InputError:
                continue
            places.setdefault(allowed, []).append((project, kind is Kind.TRAINING))
    return places


async def _is_accepted(
    db: AsyncSession, milli: int, places: dict[Groups, list[tuple[Project, bool]]], context: SubmissionContext
) -> bool:
    for (names, only), those in places.items():
        asked = Workload("offered", "", 0, gpu_milli=milli, groups=names, grouped_only=only)
        if context.fleet.never_fits(asked):
            continue
        for project, preemptible in those:
            try:
                await projects.check_cap(db, project, milli, preemptible=preemptible)
            except InputError:
                continue
            return True
    return False
