"""GPU shares as a slider offers them: the site's steps up to one GPU, then whole GPUs, as far as they are accepted."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.resources.groups import service as groups
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
    db: AsyncSession, project: Project, kind: Kind, caller: Identity, context: SubmissionContext
) -> list[int]:
    """Return the steps that a session of one container may ask for, of a kind and in a project of the caller.

    Nodes, limits of the project and the caller's policy are asked as on submission; what waits is offered.
    """
    await context.fleet.refresh(db)
    try:
        names, only = groups.allowed(context.fleet.permissions, caller.id, project, kind)
    except InputError:
        return []
    left = await user_policies.left_milli(db, caller.id)
    every = [milli for milli in steps(context.settings) if left is None or milli <= left]
    found: list[int] = []
    # who gets so many parts of a GPU, or whole ones, gets fewer, too
    for some in ([milli for milli in every if milli < MILLI], [milli for milli in every if milli >= MILLI]):
        for milli in some:
            asked = Workload("offered", "", 0, gpu_milli=milli, groups=names, grouped_only=only)
            if context.fleet.never_fits(asked) or not await _is_allowed(db, milli, project, kind):
                break
            found.append(milli)
    return found


async def _is_allowed(db: AsyncSession, milli: int, project: Project, kind: Kind) -> bool:
    try:
        await projects.check_cap(db, project, milli, preemptible=kind is Kind.TRAINING)
    except InputError:
        return False
    return True
