"""Endpoints of sessions. Members of a project see its sessions; what they may do to them says the policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Annotated, Any
from uuid import UUID

import structlog
from fastapi import Depends, Header, Query, Response, WebSocket, WebSocketDisconnect, status
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.auth.identity import Identity
from api.auth.policy import Action
from api.control.dry_runs import DryRuns
from api.control.manager import WakeAfterwards
from api.database import Database
from api.endpoints import auditing
from api.endpoints.access import Caller, SettingsOf, action, authorize, caller_of
from api.endpoints.room import RoomForSessions
from api.endpoints.routes import Router
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.engine.base import Engine, TerminalSize
from api.lists import session_pages, session_views, texts
from api.lists.session_pages import Filters
from api.lists.texts import TextsOf
from api.resources.projects import service as projects
from api.resources.schemas import NODE_NAME, PLACE, NamePath, NameQuery, Text
from api.resources.sessions import relay, resizing, service, submission
from api.resources.sessions.relay import LogStream
from api.resources.sessions.schemas import BatchRequest, DryRunRequest, Extension, SessionChange, SessionRequest
from api.resources.sessions.streams import Streams
from api.resources.sessions.submission import SubmissionContext
from api.resources.sessions.views import DryRunView, SessionEntryView, SessionView
from api.settings import Settings
from api.tables.sessions import MAX_CONTAINERS, Session, State
from common.errors import InputError, PenstockError

log = structlog.get_logger()
router = Router(prefix="/sessions", tags=["sessions"])

FIRST_PART_S = 2.0
NOT_ALLOWED = (401, 403, 404)
"""Of errors: that somebody may not do this, or not any more."""
PAGE = 200
MAX_PAGE = 1000
"""How many sessions an answer has unless it is said, and at most."""

DELETED: dict[int | str, dict[str, Any]] = {200: {"model": SessionView, "description": "It has ended"}}

_command = TypeAdapter(list[Text])


async def submission_context(connection: HTTPConnection) -> SubmissionContext:
    """Return what submissions are checked against."""
    return SubmissionContext(connection.app.state.settings, connection.app.state.fleet)


async def dry_runs_of(connection: HTTPConnection) -> DryRuns:
    """Return what answers dry runs."""
    dry_runs: DryRuns = connection.app.state.dry_runs
    return dry_runs


SubmissionContextOf = Annotated[SubmissionContext, Depends(submission_context)]
DryRunsOf = Annotated[DryRuns, Depends(dry_runs_of)]


@router.post("", status_code=201)
@action(Action.SESSION_SUBMIT)
async def submit_session(
    request: SessionRequest,
    caller: Caller,
    db: Transaction,
    context: SubmissionContextOf,
    _room: RoomForSessions,
    _wake: WakeAfterwards,
) -> SessionView:
    """Put a session into the queue."""
    return await _view(db, await submission.submit(db, request, caller, context), context.settings)


@router.post("/batch", status_code=201)
@action(Action.SESSION_SUBMIT)
async def submit_sessions(
    request: BatchRequest,
    caller: Caller,
    db: Transaction,
    context: SubmissionContextOf,
    _room: RoomForSessions,
    _wake: WakeAfterwards,
) -> list[SessionEntryView]:
    """Put several equal sessions into the queue, all or none: `count` 3 makes NAME-1, NAME-2 and NAME-3."""
    ids = await submission.submit_batch(db, request, caller, context)
    return await session_views.entries(db, ids, context.settings.apps)


@router.post("/check")
@action(Action.SESSION_DRY_RUN)
async def check_session(
    request: DryRunRequest,
    caller: Caller,
    database: DatabaseOf,
    context: SubmissionContextOf,
    dry_runs: DryRunsOf,
    _room: RoomForSessions,
) -> DryRunView:
    """Say what would become of a session, or of `count` equal ones, without submitting it: a dry run.

    What could not be submitted is refused as the submission would be. The answer is of this moment: others submit, too.
    """
    return await dry_runs.check(database, request, caller, context)


@router.get("", response_model=list[SessionEntryView], responses=texts.RESPONSES)
@action(Action.SESSION_READ)
async def list_sessions(
    *,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    kept: TextsOf,
    project: NameQuery | None = None,
    user: NameQuery | None = None,
    node: Annotated[str | None, Query(min_length=1, max_length=63, pattern=r"^[a-z0-9.-]+$"), NODE_NAME] = None,
    state: Annotated[list[State] | None, Query(max_length=len(State))] = None,
    all_: Annotated[bool, Query(alias="all")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
    after: Annotated[str | None, Query(max_length=64, pattern=r"^[0-9]{1,16}\.[0-9a-f]{32}$"), PLACE] = None,
    if_none_match: Annotated[str | None, Header(max_length=256)] = None,
) -> Response:
    """List sessions, oldest first: of a project, or of all projects that the caller may see.

    Of a `user`, on a `node`, in any `state` that is named; `all` shows terminated ones too. An answer has as many as
    `limit` and a few MiB hold; where there are more, `X-Next` is what to send as `after` to get those that follow. An
    answer that is as it was is a 304 for who sends its `ETag` as `If-None-Match`.
    """
    filters = Filters(project=project, user=user, node=node, states=state or (), ended=all_)
    apps = settings.apps
    page = await session_pages.page(db, caller, filters, limit=limit, after=after, apps=apps)
    if project is not None and not page.entries:
        # Who may see sessions of a project may see the project: only where there are none it is asked for.
        await projects.get(db, project, caller)
    return await texts.answer(page, kept, lambda ids: session_views.texts(db, ids, apps), if_none_match)


@router.get("/{name}")
@action(Action.SESSION_READ)
async def get_session(
    name: NamePath, project: NameQuery, caller: Caller, db: Reading, settings: SettingsOf
) -> SessionView:
    """Show the live session of a name, else the newest that has ended, or the session of an id in place of a name."""
    return await _view(db, (await service.get(db, project, name, caller)).id, settings)


@router.patch("/{name}")
@action(Action.SESSION_CHANGE)
async def change_session(
    *,
    name: NamePath,
    project: NameQuery,
    request: SessionChange,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    _wake: WakeAfterwards,
) -> SessionView:
    """Change the priority of a session that waits, the GPU share of one that runs, or who sees a session.

    A priority above what is usual for its kind only the project's managers give. A share changes on the GPUs that the
    session has: `resize_milli` is there until its agents have taken it, and `reason` says why one was not taken. Who
    sees a session its owner changes, and administrators; one that has ended, too.
    """
    if request.access is not None:
        session_id = await service.show_to(db, project, name, request.access, caller)
    elif request.gpu_milli is not None:
        session_id = await resizing.ask(db, project, name, request.gpu_milli, caller, settings=settings)
    else:
        session_id = await service.give_priority(db, project, name, request.priority or 0, caller)
    return await _view(db, session_id, settings)


@router.post("/{name}/restart", status_code=202, response_description="Its containers are ending")
@action(Action.SESSION_RESTART)
async def restart_session(
    name: NamePath, project: NameQuery, caller: Caller, db: Transaction, settings: SettingsOf, _wake: WakeAfterwards
) -> SessionView:
    """End the containers of a session and put it back into the queue: same id, name, volumes and request."""
    return await _view(db, await service.restart(db, project, name, caller, settings), settings)


@router.post("/{name}/extend")
@action(Action.SESSION_EXTEND)
async def extend_session(
    *, name: NamePath, project: NameQuery, request: Extension, caller: Caller, db: Transaction, settings: SettingsOf
) -> SessionView:
    """Put off the end of a session that has a time limit; owners as far as the project lets them.

    While places are reserved on its nodes for a session that waits, only an administrator of the site may.
    """
    return await _view(db, await service.extend(db, project, name, request.seconds, caller), settings)


@router.delete("/{name}", status_code=202, response_description="It is terminating", responses=DELETED)
@action(Action.SESSION_END)
async def delete_session(
    *,
    name: NamePath,
    project: NameQuery,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    connection: HTTPConnection,
    response: Response,
    _wake: WakeAfterwards,
) -> SessionView:
    """End a session, or take an ended one off the lists; one that is terminating or has ended is answered as it is."""
    session = await _view(db, await service.delete(db, project, name, caller), settings)
    if session.state is State.TERMINATED:
        response.status_code = status.HTTP_200_OK
        await auditing.answers(db, connection, status.HTTP_200_OK)
    return session


@router.get("/{name}/logs", response_class=LogStream, responses={200: {"content": {"text/plain": {}}}})
@action(Action.SESSION_READ)
async def session_log(
    *,
    connection: HTTPConnection,
    name: NamePath,
    project: NameQuery,
    caller: Caller,
    database: DatabaseOf,
    rank: Annotated[int, Query(ge=0)] = 0,
    follow: bool = False,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
) -> LogStream:
    """Stream the log of a session's container, by its rank. One that breaks off has no proper end.

    Of what has ended the last 256 KiB can be read, and of all containers of a session together 1 MiB.
    """
    async with database.reading() as db:
        session = await service.get(db, project, name, caller)
    relay.check_rank(session, rank)
    streams = _streams(connection)
    engine = _engine(connection)
    stream = relay.log(database, engine, streams.notices, session.id, rank=rank, follow=follow, tail=tail)
    if follow:

        async def may_stay() -> None:
            await authorize(connection)
            async with database.reading() as db:
                await service.get(db, project, str(session.id), await caller_of(connection))

        stream = streams.follow(caller.id, session.id, stream, may_stay)
    # The first part is awaited before the answer begins, so that an agent that is away becomes a proper error. Where
    # nothing comes the answer begins all the same: only then is it noticed that the client has gone away.
    first = asyncio.ensure_future(_first(stream))
    try:
        await asyncio.wait([first], timeout=FIRST_PART_S)
    except asyncio.CancelledError:
        first.cancel()
        raise
    if first.done():
        first.result()
    return LogStream(
        _from(first, stream),
        media_type="text/plain; charset=utf-8",
        headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
    )


@router.websocket("/{name}/exec")
@action(Action.SESSION_ENTER)
async def session_exec(
    *,
    websocket: WebSocket,
    name: NamePath,
    project: NameQuery,
    command: Annotated[str, Query(max_length=65_536)],
    caller: Caller,
    database: DatabaseOf,
    rows: Annotated[int, Query(ge=0, le=10_000)] = 24,
    cols: Annotated[int, Query(ge=0, le=10_000)] = 80,
    tty: bool = True,
    container: Annotated[int, Query(ge=0, lt=MAX_CONTAINERS)] = 0,
    apart: bool = False,
) -> None:
    """Run a command in a `container` of a session, with a terminal on it or not; frames are as agents speak them.

    Without a terminal what it writes as errors comes `apart` where that is asked for, told by `stream` frames.
    """
    await websocket.accept()
    code, streams = status.WS_1000_NORMAL_CLOSURE, _streams(websocket)
    try:
        async with AsyncExitStack() as held:
            async with auditing.attempted(websocket, session_exec):
                words = _words(command)
                session = await _enter(database, project, name, caller)
                agent = relay.running_on(session, container)
                held.enter_context(streams.admit(caller.id))
            async with database.transaction() as db:
                path = f"sessions/{session.name}/exec"
                await auditing.record(db, websocket, object=path, project=session.project.name, nodes=[agent.name])

            async def may_stay() -> None:
                await authorize(websocket)
                await _enter(database, project, name, await caller_of(websocket))

            size = TerminalSize(rows, cols) if tty else None
            terminal = _engine(websocket).terminal(agent, session.container_id(container), words, tty=size, apart=apart)
            # what is run there is the user's own business
            log.info("audit", what="session entered", session=session.name, project=project, by=caller.name)
            # nothing runs before it is told; where it cannot run, that is told as well
            async with auditing.attempted(websocket, session_exec):
                joined = await held.enter_async_context(terminal)
            await relay.join(websocket, joined, streams.watch(caller.id, session.id, may_stay))
    except PenstockError as error:
        await relay.say_error(websocket, error)
        code = status.WS_1008_POLICY_VIOLATION if error.http_status in NOT_ALLOWED else code
    # who has left first needs no good-bye
    with suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close(code)


def _streams(connection: HTTPConnection) -> Streams:
    streams: Streams = connection.app.state.streams
    return streams


def _engine(connection: HTTPConnection) -> Engine:
    engine: Engine = connection.app.state.engine
    return engine


def _words(command: str) -> list[str]:
    try:
        words = _command.validate_python(json.loads(command))
    except (ValueError, ValidationError, RecursionError):
        words = []
    if not words:
        raise InputError(
            "the command is not a JSON list of words", where="command", hint='write it like ["bash", "-l"]'
        )
    return words


async def _first(stream: AsyncIterator[bytes]) -> bytes:
    return await anext(stream, b"")


async def _from(first: asyncio.Future[bytes], stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield await first
    async for chunk in stream:
        yield chunk


async def _enter(database: Database, project: str, name: str, caller: Identity) -> Session:
    async with database.reading() as db:
        return await service.get_for(db, project, name, caller, Action.SESSION_ENTER)


async def _view(db: AsyncSession, session_id: UUID, settings: Settings) -> SessionView:
    return await session_views.view(db, session_id, settings.apps)
