"""States of projects: what they may hold, as the scheduler knows it."""

from __future__ import annotations

from datetime import datetime

from api.resources.projects import service
from api.scheduler.snapshot import Bounds, ProjectState
from api.tables.projects import Project


def project_state(project: Project, moment: datetime, *, aged: bool = False) -> ProjectState:
    """Return a project as it is now: outside its period nothing is guaranteed to it.

    What it had lately is told where that counts (`aged`).
    """
    is_active = service.is_active(project, moment)
    return ProjectState(
        name=project.name,
        quota_milli=service.quota_at(project, moment),
        over_quota=project.over_quota,
        weight=project.over_quota_weight,
        min_runtime_s=project.min_runtime_s,
        limit_milli=project.limit_milli,
        cpu=_bounds(project.cpu_quota_milli, project.cpu_limit_milli, is_active=is_active),
        memory=_bounds(project.memory_quota_mib, project.memory_limit_mib, is_active=is_active),
        had_milli=round(project.had_milli) if aged else 0,
        domain=project.domain or "",
    )


def _bounds(quota: int | None, limit: int | None, *, is_active: bool) -> Bounds | None:
    return None if quota is None else Bounds(quota if is_active else 0, limit)
