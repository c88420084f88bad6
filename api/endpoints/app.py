"""The application: routes, errors, and what runs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import Depends, FastAPI

from api.auth.workers import Workers
from api.clock import Clock
from api.control.dry_runs import DryRuns
from api.control.manager import Manager
from api.control.signs import Signs
from api.database import Database
from api.endpoints import (
    accounting,
    api_keys,
    apps,
    audit_log,
    backups,
    denied_calls,
    docs,
    domains,
    errors,
    groups,
    health,
    images,
    logins,
    logs,
    metrics,
    nodes,
    notices,
    overview,
    presets,
    projects,
    repairs,
    sandboxes,
    scheduler,
    security,
    session_events,
    sessions,
    system,
    user_policies,
    users,
    volumes,
)
from api.endpoints.access import PREFIX, check_routes, is_behind_edge
from api.endpoints.auditing import concluded, watch_left_out
from api.endpoints.caching import NoStore
from api.endpoints.change_rate import DRY_RUNS_A_MINUTE, ChangeRate, DryRunRate
from api.endpoints.failed_attempts import FailedAttempts
from api.endpoints.outages import WriteCheck
from api.endpoints.repeats import Repeats
from api.endpoints.routes import authorized
from api.endpoints.traffic import Counted, Traffic
from api.engine.base import Engine
from api.lists.nodes import GroupsOfNodes
from api.lists.overview import IdleGpus
from api.lists.stamps import Stamps
from api.lists.summary import RoomOfGroups
from api.lists.texts import Texts
from api.notices import Notices
from api.resources.apps.service import AppIndex
from api.resources.audit import service as audit
from api.resources.nodes.fleet import Fleet
from api.resources.nodes.heartbeats import HELD_PART, Heartbeats
from api.resources.nodes.service import recall_machines
from api.resources.notices.service import Board
from api.resources.sessions.streams import Streams
from api.settings import Settings
from common import revocation
from common.request_id import RequestIds
from common.watchdog import Watchdog

DESCRIPTION = (
    "Users, projects, nodes, images and sessions of a Penstock site. Shares are in milli-GPU: 1,000 are one GPU."
)


class Application(FastAPI):
    """FastAPI with the document as we describe it."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return security.described(errors.described(super().openapi()), self)


def create_app(
    settings: Settings,
    database: Database,
    engine: Engine,
    *,
    reconcile: bool = True,
    pages: Callable[[FastAPI], None] | None = None,
) -> FastAPI:
    """Return the application; with `reconcile` False nothing runs beside the requests.

    `pages` adds the console: nothing imports that, so whoever makes the application hands it in.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        manager: Manager = app.state.manager
        watchdog = Watchdog(Signs(settings, manager).what_hangs, settings.notify_socket, settings.watchdog_usec)
        beside = [app.state.notices.run(), revocation.keep_fresh(), watch_left_out(app), watchdog.run()]
        beside += [manager.run()] if reconcile else []
        async with app.state.database.reading() as db:
            await recall_machines(db, app.state.heartbeats)
        running = [asyncio.create_task(work) for work in beside]
        yield
        for task in running:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task
        await app.state.engine.close()
        await app.state.database.close()

    app = Application(
        title="Penstock control API",
        description=DESCRIPTION,
        version=system.VERSION,
        lifespan=lifespan,
        dependencies=[Depends(concluded, scope="function"), Depends(authorized)],
        responses=errors.RESPONSES,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    set_up(app, settings, database, engine)
    errors.install(app)
    app.add_middleware(NoStore)
    app.add_middleware(Repeats)
    app.add_middleware(RequestIds, trusts=is_behind_edge)
    app.add_middleware(Counted)
    _include_routes(app)
    if pages:
        pages(app)
    docs.mount_static(app)
    check_routes(app)
    return app


def set_up(app: FastAPI, settings: Settings, database: Database, engine: Engine, clock: Clock = Clock()) -> None:
    """Give an application what it works with, and nothing that it may have remembered from before."""
    app.state.settings = settings
    app.state.database = database
    app.state.write_check = WriteCheck(database)
    app.state.engine = engine
    app.state.heartbeats = Heartbeats(settings.clock_offset_s, HELD_PART * settings.node_lost_s)
    app.state.fleet = Fleet()
    app.state.workers = Workers(settings.agents_file)
    app.state.apps = AppIndex()
    app.state.texts = Texts()
    app.state.traffic = Traffic()
    app.state.failed_attempts = FailedAttempts()
    app.state.change_rate = ChangeRate(settings.changes_per_hour, clock)
    app.state.dry_run_rate = DryRunRate(DRY_RUNS_A_MINUTE, clock)
    app.state.audit_log = audit.log_of(settings)
    app.state.audit_searches = audit_log.Turns()
    app.state.log_searches = asyncio.Semaphore(logs.AT_ONCE)
    app.state.groups_of_nodes = GroupsOfNodes()
    app.state.idle_gpus = IdleGpus()
    app.state.room_of_groups = RoomOfGroups()
    app.state.stamps = Stamps()
    app.state.notices = Notices(database)
    app.state.notice_board = Board(database)
    app.state.streams = Streams(app.state.notices, settings.streams_per_user)
    app.state.manager = Manager(database, engine, app.state.heartbeats, settings, clock)
    app.state.dry_runs = DryRuns(app.state.manager.loop)


def _include_routes(app: FastAPI) -> None:
    # routes are tried one after another, and nobody asks as often as all agents do
    for router in (nodes.agents, metrics.agents, denied_calls.agents, apps.agents, repairs.controller):
        app.include_router(router)
    for router in (
        logins.router,
        api_keys.router,
        users.router,
        user_policies.router,
        domains.router,
        accounting.router,
        projects.router,
        nodes.router,
        groups.router,
        images.router,
        notices.router,
        presets.router,
        volumes.router,
        sandboxes.router,
        sessions.router,
        session_events.router,
        metrics.router,
        denied_calls.router,
        scheduler.router,
        overview.router,
        audit_log.router,
        backups.router,
        logs.router,
        repairs.router,
        health.router,
        apps.router,
        system.router,
        system.health,
    ):
        app.include_router(router, prefix=PREFIX)
    for router in (system.health, docs.router):
        app.include_router(router)
