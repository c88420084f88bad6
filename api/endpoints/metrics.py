"""Endpoints of metrics: where agents report them, and where who may see a session sees them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from api.auth.policy import Action
from api.endpoints.access import Agent, Caller, SettingsOf, action, check_speaks_for, for_agents
from api.endpoints.room import RoomForMetrics
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.metrics import service
from api.resources.metrics.schemas import MetricsView
from api.resources.schemas import Moment, NamePath, NameQuery
from api.resources.sessions import service as sessions
from common.protocol import METRICS_PATH, MetricsReport

router = Router(prefix="/sessions", tags=["sessions"])
agents = Router(tags=["agents"])


@router.get("/{name}/metrics")
@action(Action.SESSION_READ)
async def session_metrics(
    *,
    name: NamePath,
    project: NameQuery,
    caller: Caller,
    db: Reading,
    since: Moment | None = None,
    until: Moment | None = None,
    points: Annotated[int, Query(ge=1, le=service.MAX_POINTS)] = service.POINTS,
) -> MetricsView:
    """Show what a session used of its GPUs, by default in its last hour.

    Each container and GPU has at most so many `points`, each of at least 15 s; of sessions with many GPUs fewer.
    """
    session = await sessions.get(db, project, name, caller)
    return await service.show(db, session, since, until, points)


@agents.post(METRICS_PATH, status_code=204)
@for_agents
async def report_metrics(
    message: MetricsReport, agent: Agent, db: Transaction, settings: SettingsOf, _room: RoomForMetrics
) -> Response:
    """Take an agent's samples; the certificate must be that of the node it speaks of. A sample counts once."""
    check_speaks_for(agent, message.name)
    await service.record(db, message, settings.metrics_keep_s)
    return Response(status_code=204)
