"""Endpoints of sessions. Members of a project see its sessions; only their owner and administrators act on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, WebSocket
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.requests import HTTPConnection

from api.access import Caller, SettingsOf, action
from api.database import DatabaseOf, Reading, Transaction
from api.engine.base import Engine
from api.model import NamePath, NameQuery, Text
from api.policy import Action
from api.reconcilers.manager import WakeAfterwards
from api.sessions import relay, service
from api.sessions.schemas import SessionRequest, SessionView
from reservoir.errors import InputError, PenstockError

router = APIRouter(prefix="/sessions", tags=["sessions"])

FIRST_PART_S = 2.0

_command = TypeAdapter(list[Text])


@router.post("", status_code=201)
@action(Action.SESSION_SUBMIT)
async def submit_session(
    request: SessionRequest, caller: Caller, db: Transaction, settings: SettingsOf, _wake: WakeAfterwards
) -> SessionView:
    """Put a session into the queue."""
    return SessionView.of(await service.submit(db, request, caller, settings))


@router.get("")
@action(Action.SESSION_READ)
async def list_sessions(
    caller: Caller,
    db: Reading,
    project: NameQuery | None = None,
    all_: Annotated[bool, Query(alias="all")] = False,
) -> list[SessionView]:
    """List the sessions of a project, or of all projects that the caller may see; `all` shows terminated ones too."""
    return [SessionView.of(item) for item in await service.visible(db, caller, project, terminated=all_)]


@router.get("/{name}")
@action(Action.SESSION_READ)
async def get_session(name: NamePath, project: NameQuery, caller: Caller, db: Reading) -> SessionView:
    """Show the live session of a name, else the newest that has ended."""
    return SessionView.of(await service.get(db, project, name, caller))


@router.delete("/{name}", status_code=202)
@action(Action.SESSION_END)
async def delete_session(
    name: NamePath, project: NameQuery, caller: Caller, db: Transaction, _wake: WakeAfterwards
) -> SessionView:
    """End a session, or take an ended one off the lists."""
    return SessionView.of(await service.delete(db, project, name, caller))


@router.get("/{name}/logs", response_class=StreamingResponse, responses={200: {"content": {"text/plain": {}}}})
@action(Action.SESSION_READ)
async def session_log(
    *,
    connection: HTTPConnection,
    name: NamePath,
    project: NameQuery,
    caller: Caller,
    database: DatabaseOf,
    follow: bool = False,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
) -> StreamingResponse:
    """Stream a session's log; it can be read after the session has ended."""
    async with database.reading() as db:
        session = await service.get(db, project, name, caller)
    stream = relay.log(database, _engine(connection), session.id, follow=follow, tail=tail)
    # The first part is awaited before the answer begins, so that an agent that is away becomes a proper error. Where
    # nothing comes the answer begins all the same: only then is it noticed that the client has gone away.
    first = asyncio.ensure_future(_first(stream))
    await asyncio.wait([first], timeout=FIRST_PART_S)
    if first.done():
        first.result()
    return StreamingResponse(
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
) -> None:
    """Run a command in a session with a terminal on it; the frames are those of the agent's protocol."""
    await websocket.accept()
    try:
        words = _words(command)
        async with database.reading() as db:
            session = await service.get_own(db, project, name, caller)
        target = relay.running_on(session)
        engine = _engine(websocket)
        async with engine.terminal(target, session.container_id(0), words, tty=tty, rows=rows, cols=cols) as terminal:
            await relay.join(websocket, terminal)
    except PenstockError as error:
        await relay.say_error(websocket, str(error))
    with suppress(RuntimeError):
        await websocket.close()


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
            "the command is not a JSON list of words", where="command", cure='write it like ["bash", "-l"]'
        )
    return words


async def _first(stream: AsyncIterator[bytes]) -> bytes:
    return await anext(stream, b"")


async def _from(first: asyncio.Future[bytes], stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with suppress(PenstockError):
        yield await first
        async for chunk in stream:
            yield chunk
