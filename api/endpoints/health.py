"""Endpoints of health: the checks of nodes and of the site, their history, and what people say of them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query, Response
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.control.manager import WakeAfterwards
from api.endpoints import exposition
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.lists import load, texts
from api.lists.overview import RememberedIdle
from api.resources.health import metrics, service
from api.resources.health.schemas import AcknowledgementRequest, CheckChangeView, CheckView
from api.resources.nodes import service as nodes
from api.resources.schemas import NODE_NAME, PLACE
from common.checks import CheckState
from common.hints import hinted
from common.sentence import Sentence

router = Router(tags=["health"])

PAGE, MAX_PAGE = 200, 1000
_CHECK = hinted(Sentence("write one such as {example}", example="gpu.xid"), Sentence("is no check"))
NodeOf = Annotated[str | None, Query(max_length=63, pattern=r"^[A-Za-z0-9._-]*$"), NODE_NAME]


@router.get("/health/checks")
@action(Action.HEALTH_READ)
async def list_checks(
    *,
    caller: Caller,  # noqa: ARG001 - who may call it sees all
    db: Reading,
    settings: SettingsOf,
    node: NodeOf = None,
    state: Annotated[list[CheckState] | None, Query()] = None,
) -> list[CheckView]:
    """List the checks of the site and of its nodes, of one `node` (empty: the site itself), in some states."""
    return await service.show(db, settings, node, state or ())


@router.get("/health/changes", responses={200: {"headers": {"X-Next": texts.HEADERS["X-Next"]}}})
@action(Action.HEALTH_READ)
async def list_check_changes(
    *,
    response: Response,
    db: Reading,
    node: NodeOf = None,
    check: Annotated[str | None, Query(max_length=255, pattern=r"^[a-z.]+$"), _CHECK] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
    after: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$"), PLACE] = None,
) -> list[CheckChangeView]:
    """List how checks have changed, the newest first; `X-Next` is what to send as `after` to get those that follow."""
    found = await service.changes(db, node, check, int(after) if after else None, limit + 1)
    if len(found) > limit:
        response.headers["X-Next"] = str(found[limit - 1].number)
    return found[:limit]


@router.put("/health/checks/{check_id}/acknowledgement")
@action(Action.HEALTH_CHANGE)
async def acknowledge_check(
    check_id: UUID, request: AcknowledgementRequest, caller: Caller, db: Transaction, settings: SettingsOf
) -> CheckView:
    """Tell nobody of a check until a moment. A node that it closes stays closed."""
    return await service.acknowledge(db, settings, check_id, request, caller)


@router.delete("/health/checks/{check_id}/acknowledgement")
@action(Action.HEALTH_CHANGE)
async def end_check_acknowledgement(check_id: UUID, db: Transaction, settings: SettingsOf) -> CheckView:
    """Tell of a check again."""
    return await service.end_acknowledgement(db, settings, check_id)


@router.post("/health/checks/{check_id}/clear")
@action(Action.HEALTH_CHANGE)
async def clear_check(
    check_id: UUID, caller: Caller, db: Transaction, settings: SettingsOf, _wake: WakeAfterwards
) -> CheckView:
    """Let a check count as well until what it tells of occurs anew: somebody has looked after it."""
    node_id = await service.node_of(db, check_id)
    node = await nodes.by_id(db, node_id) if node_id else None
    return await service.clear(db, settings, check_id, node, caller)


@router.get("/metrics", response_class=Response, responses={200: {"content": {exposition.MEDIA_TYPE: {}}}})
@action(Action.HEALTH_READ)
async def show_metrics(connection: HTTPConnection, db: Reading, settings: SettingsOf, idle: RememberedIdle) -> Response:
    """Show checks, nodes, queue, GPUs, scheduler and requests in the text format of Prometheus."""
    process = connection.app.state
    every = [(node, is_open) for node, is_open in await nodes.with_open(db)]
    families = [
        *metrics.families(await service.show(db, settings, None, ()), every),
        *exposition.of_load(await load.read(db), sum((await idle.by_project(db)).values())),
        *exposition.of_process(process.manager, process.database),
    ]
    return Response(exposition.text(families, process.traffic), media_type=exposition.MEDIA_TYPE)
