"""Endpoints of denied calls: where agents tell them, and where those see them who look after the session's project."""

from __future__ import annotations

from fastapi import Response

from api.auth.policy import Action
from api.endpoints.access import Agent, Caller, SettingsOf, action, check_speaks_for, for_agents
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.denied_calls import service
from api.resources.denied_calls.schemas import DeniedCallsView
from api.resources.schemas import NamePath, NameQuery
from api.resources.sessions import service as sessions
from common.denied_call_protocol import DENIED_CALLS_PATH, DeniedCallReport

router = Router(prefix="/sessions", tags=["sessions"])
agents = Router(tags=["agents"])


@router.get("/{name}/denied-calls")
@action(Action.DENIED_CALL_READ)
async def session_denied_calls(name: NamePath, project: NameQuery, caller: Caller, db: Reading) -> DeniedCallsView:
    """Show which system calls the sandbox of a session denied, the newest first."""
    return await service.show(db, await sessions.get(db, project, name, caller), caller)


@agents.post(DENIED_CALLS_PATH, status_code=204)
@for_agents
async def report_denied_calls(
    message: DeniedCallReport, agent: Agent, db: Transaction, settings: SettingsOf
) -> Response:
    """Take what sandboxes of a node denied; the certificate must be that node's. What is told twice counts once."""
    check_speaks_for(agent, message.name)
    await service.record(db, message, settings.denied_call_keep_s)
    return Response(status_code=204)
