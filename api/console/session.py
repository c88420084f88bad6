"""One session: why it waits, its containers, apps and log, and what may be done to it."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Form, Query, Request, Response

from api.auth.identity import Identity
from api.auth.policy import Action
from api.console import pages
from api.console.routes import REFRESH, Router
from api.control.manager import WakeAfterwards
from api.endpoints.access import PREFIX, Caller, SettingsOf, action
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.engine.base import Engine
from api.lists import session_views
from api.resources.denied_calls import service as denied_calls
from api.resources.schemas import NamePath, NameQuery
from api.resources.sessions import access, events, relay, resizing, service
from api.resources.sessions.schemas import MAX_SECONDS
from api.resources.sessions.streams import Streams
from api.tables.sessions import ENDED, Session, State
from common import refusals
from common.errors import UnavailableError

HOUR_S = 3600
EVENTS = 50
"""So many of what became of a session are shown, and of the calls that its sandbox denied: the last ones."""
LINES = (200, 1000, 5000)
LOG_BYTES = 256 << 10
"""So many lines of a log are shown, the first number unless it is said, and so many bytes: the last ones."""
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What moves cursors and colours letters on a terminal."""

router = Router(prefix="/sessions/{name}")


@router.get("")
@action(Action.SESSION_READ)
async def show_session(
    *, request: Request, name: NamePath, project: NameQuery, caller: Caller, db: Reading, settings: SettingsOf
) -> Response:
    """Show a session, by its name or its id."""
    found = await service.get(db, project, name, caller)
    view = await session_views.view(db, found.id, settings.apps)
    can = _allowed(found, caller)
    shares = await resizing.offered(db, found, settings) if can["resize"] else []
    left = service.extension_left_s(found, caller)
    values = {"session": view, "can": can, "shares": shares, "most_hours": min(left, MAX_SECONDS) // HOUR_S}
    reserved = await service.reserved_under(db, found, caller) if can["extend"] else []
    values |= {"one_origin": bool(settings.apps_url) and not settings.apps_name}
    values |= {"reserved": reserved, "events": await events.newest(db, found.id, EVENTS)}
    sees_calls = found.denied and caller.may(Action.DENIED_CALL_READ, project=found.project)
    values |= {"denied_calls": (await denied_calls.show(db, found, caller)).series[:EVENTS] if sees_calls else []}
    return await pages.live(request, "session.html", "session_live.html", values)


@router.get("/log")
@action(Action.SESSION_READ)
async def show_log(
    *,
    request: Request,
    name: NamePath,
    project: NameQuery,
    lines: Annotated[int, Query(ge=1, le=LINES[-1])] = LINES[0],
    rank: Annotated[int, Query(ge=0)] = 0,
    caller: Caller,
    database: DatabaseOf,
) -> Response:
    """Show the last lines of the log of a session's container."""
    async with database.reading() as db:
        session = await service.get(db, project, name, caller)
    relay.check_rank(session, rank)
    engine: Engine = request.app.state.engine
    streams: Streams = request.app.state.streams
    text, problem = bytearray(), ""
    try:
        log = relay.log(database, engine, streams.notices, session.id, rank=rank, follow=False, tail=lines)
        async for chunk in log:
            text = (text + chunk)[-LOG_BYTES:]
    except UnavailableError as error:
        problem = refusals.said_to(request, error)
    values = {"log": _plain(bytes(text)), "problem": problem, "session": session}
    values |= {"lines": lines, "choices": LINES, "file": f"{PREFIX}/sessions/{session.id}/logs"}
    values |= {"rank": rank, "kept_kib": session.log_bytes >> 10 if session.state in ENDED else None}
    return await pages.live(request, "log.html", "log_live.html", values, name="log")


@router.post("/delete", status_code=204, dependencies=[REFRESH])
@action(Action.SESSION_END)
async def delete_session(
    name: NamePath, project: NameQuery, caller: Caller, db: Transaction, _wake: WakeAfterwards
) -> None:
    """End a session, or take an ended one off the lists."""
    await service.delete(db, project, name, caller)


@router.post("/restart", status_code=204, dependencies=[REFRESH])
@action(Action.SESSION_RESTART)
async def restart_session(
    *,
    name: NamePath,
    project: NameQuery,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    _wake: WakeAfterwards,
) -> None:
    """End the containers of a session and put it back into the queue."""
    await service.restart(db, project, name, caller, settings)


@router.post("/extend", status_code=204, dependencies=[REFRESH])
@action(Action.SESSION_EXTEND)
async def extend_session(
    *,
    name: NamePath,
    project: NameQuery,
    hours: Annotated[int, Form(ge=1, le=MAX_SECONDS // HOUR_S)],
    caller: Caller,
    db: Transaction,
) -> None:
    """Put off the end of a session."""
    await service.extend(db, project, name, hours * HOUR_S, caller)


@router.post("/resize", status_code=204, dependencies=[REFRESH])
@action(Action.SESSION_RESIZE)
async def resize_session(
    *,
    name: NamePath,
    project: NameQuery,
    gpu_milli: Annotated[int, Form()],
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    _wake: WakeAfterwards,
) -> None:
    """Change the share that each container of a session has of its GPU."""
    await resizing.ask(db, project, name, gpu_milli, caller, settings=settings)


def _allowed(session: Session, caller: Identity) -> dict[str, bool]:
    """Return what there is to be done to a session that the caller may do."""

    def may(wanted: Action) -> bool:
        return access.may(caller, wanted, session, session.project)

    runs = session.state is State.RUNNING
    may_add = service.extension_left_s(session, caller) >= HOUR_S
    return {
        "delete": may(Action.SESSION_END) and session.state is not State.TERMINATED,
        "restart": may(Action.SESSION_RESTART) and session.state in service.RESTARTED,
        "extend": may(Action.SESSION_EXTEND) and runs and session.expires_at is not None and may_add,
        "resize": may(Action.SESSION_RESIZE) and runs,
        "submit": caller.may(Action.SESSION_SUBMIT, project=session.project),
        "enter": may(Action.SESSION_ENTER) and runs,
        "ended": session.state in ENDED,
    }


def _plain(text: bytes) -> str:
    """Return what a terminal would leave to be read: no colours, and of a line that was written over its last state."""
    lines = _CONTROL.sub("", text.decode(errors="replace")).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
