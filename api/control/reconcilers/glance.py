"""A glance at the database: one statement tells which of the leader's work there is; idle passes cost no more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers import limits
from api.resources.audit import repository as audit
from api.resources.health import repository as health
from api.resources.images import repository as images
from api.resources.nodes import service as nodes
from api.resources.projects import service as projects
from api.resources.sessions import elastic, lifecycle, resizing
from api.resources.volumes import service as volumes
from api.settings import Settings


@dataclass(frozen=True)
class Glance:
    """What there is, as of one moment; what it names is then read by those whose work it is."""

    lost: bool
    silent: bool
    unknown: bool
    draining: bool
    out_of_reach: bool
    unstarted: bool
    timed: bool
    expired: bool
    before_start: bool
    resizing: bool
    waiting: bool
    growing: bool
    in_operation: bool
    images: bool
    volumes: bool
    audit: bool
    unsent: bool
    alerts: bool

    @property
    def has_due(self) -> bool:
        """Whether the clock, or rights that were lost, may ask something of sessions."""
        return self.draining or self.timed or self.expired or self.before_start


async def look(db: AsyncSession, settings: Settings, at: datetime) -> Glance:
    """Return which work there may be."""
    conditions: dict[str, ColumnElement[bool]] = {
        "lost": nodes.IS_LOST,
        "silent": health.is_silent(settings, at),
        "unknown": nodes.HAS_UNKNOWN,
        "draining": nodes.IS_DRAINING,
        "out_of_reach": nodes.CANNOT_CALL,
        "unstarted": lifecycle.IS_UNSTARTED,
        "timed": lifecycle.is_timed(limits.until(settings, at)),
        "expired": projects.is_expired(at),
        "before_start": lifecycle.IS_BEFORE_START,
        "resizing": resizing.IS_RESIZING,
        "waiting": lifecycle.IS_WAITING,
        "growing": elastic.IS_GROWING,
        "in_operation": lifecycle.IS_IN_OPERATION,
        "images": images.IS_UNSETTLED,
        "volumes": volumes.is_deleting(settings.pvc_storage),
        "audit": audit.IS_UNWRITTEN,
        "unsent": audit.is_unsent(wanted=settings.audit_syslog is not None),
        "alerts": health.is_due(at),
    }
    query = select(*(exists().where(condition).label(name) for name, condition in conditions.items()))
    return Glance(**(await db.execute(query)).one()._asdict())
