"""Relays through the API between a user and a session's container: its log, and terminals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog
from fastapi.responses import StreamingResponse
from starlette.types import Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from api import notices
from api.database import Database
from api.engine.base import AgentAddress, Engine, Terminal
from api.notices import Notices
from api.resources.sessions import service
from api.tables.nodes import Node
from api.tables.sessions import ENDED, Container, Session, State
from common import refusals
from common.errors import ConflictError, InputError, NotFoundError, PenstockError
from common.protocol import ExecControl
from common.sentence import Sentence, Several

logger = structlog.get_logger()

LOOK_AGAIN_S = 10.0
"""A session that waits is looked at again after so long, even if no notice has come."""
WITH_CONTAINER = (State.PREPARING, State.RUNNING, State.TERMINATING)


def agent_of(node: Node) -> AgentAddress:
    """Return how the engine reaches a node."""
    return AgentAddress(node.name, node.address, node.port)


async def log(
    database: Database,
    engine: Engine,
    heard: Notices,
    session_id: UUID,
    *,
    rank: int = 0,
    follow: bool,
    tail: int | None,
) -> AsyncGenerator[bytes]:
    """Return the log of a session's container: from that while it exists, else what was kept of it.

    With `follow` a session that has no container yet is waited for; what happens to it is told by notices.
    """
    with heard.about(notices.of_session(session_id)) as news:
        while True:
            async with database.reading() as db:
                session = (await service.by_ids(db, [session_id])).get(session_id)
                kept = await service.log_tail(db, session_id, rank)
            found = None if session is None else container_of(session, rank)
            if session is None or session.state in ENDED or (kept and not follow and not found):
                yield last_lines(kept, tail)
                return
            if found and session.state in WITH_CONTAINER:
                agent, container_id = agent_of(found.node), session.container_id(rank)
                said = False
                with suppress(NotFoundError):
                    async for chunk in engine.logs(agent, container_id, follow=follow, tail=tail):
                        said = True
                        yield chunk
                    # the log of a container that has not been started yet is at its end at once
                    if said or session.state is not State.PREPARING:
                        return
            if not follow:
                return
            await notices.wait(news, LOOK_AGAIN_S)


class LogStream(StreamingResponse):
    """A log as it comes. One that breaks off has no end, so that the client cannot take it for the whole log."""

    async def stream_response(self, send: Send) -> None:
        """Send the chunks; on an error leave the answer unfinished, for which the server closes the connection."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except PenstockError as error:
            logger.warning("log breaks off", reason=str(error))
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def last_lines(text: bytes, count: int | None) -> bytes:
    """Return the last `count` lines of a text, or all of it."""
    if count is None:
        return text
    lines = text.splitlines(keepends=True)
    return b"".join(lines[-count:]) if count else b""


def running_on(session: Session, rank: int = 0) -> AgentAddress:
    """Return where a container of a session runs; raises ConflictError where it does not, NotFoundError without one."""
    if session.state is not State.RUNNING or not session.containers:
        told = Sentence("session {name} is {state}", name=session.name, state=session.state)
        if session.reason:
            told = Sentence("{text}: {why}", text=told, why=session.why)
        raise ConflictError(told, where="name", hint=_instead(session))
    found = container_of(session, rank)
    if found is None:
        raise NotFoundError(_numbers(session), where="container", hint=Sentence("name one"))
    return agent_of(found.node)


def container_of(session: Session, rank: int) -> Container | None:
    """Return the container of a rank, None where it has no place now."""
    return next((container for container in session.containers if container.rank == rank), None)


def check_rank(session: Session, rank: int) -> None:
    """Raise InputError for the rank of no container that a session may come to have."""
    most = session.most_replicas
    if rank >= most:
        raise InputError(
            Sentence.counted(
                "session {name} has {count} container, numbered from 0",
                "session {name} has {count} containers, numbered from 0",
                most,
                name=session.name,
            ),
            where="rank",
            hint=Sentence("choose from {least} to {most}", least=0, most=most - 1),
        )


def _instead(session: Session) -> str:
    """Return what helps who would enter a session that does not run."""
    if session.state in ENDED or (session.state is State.TERMINATING and session.final_state is not State.PENDING):
        return Sentence("its log is still there: {command}", command="`penstock logs`")
    return Sentence("wait until it is {state}", state=State.RUNNING)


def _numbers(session: Session) -> str:
    """Return which containers a session has."""
    if session.max_replicas:
        return Sentence.counted(
            "session {name} has {count} container, with the numbers {numbers}",
            "session {name} has {count} containers, with the numbers {numbers}",
            session.replicas,
            name=session.name,
            numbers=Several(str(container.rank) for container in session.containers),
        )
    return Sentence.counted(
        "session {name} has {count} container, numbered from 0",
        "session {name} has {count} containers, numbered from 0",
        session.replicas,
        name=session.name,
    )


async def join(user: WebSocket, terminal: Terminal, watch: Coroutine[Any, Any, None]) -> None:
    """Carry frames both ways until one side ends, or `watch` does: with PenstockError where the user may not stay."""
    carrying = [asyncio.create_task(_carry_in(user, terminal)), asyncio.create_task(_carry_out(user, terminal))]
    watching = asyncio.create_task(watch)
    try:
        done, _ = await asyncio.wait((*carrying, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        rest = [task for task in (*carrying, watching) if not task.done()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
    if watching in done:
        watching.result()


async def _carry_in(user: WebSocket, terminal: Terminal) -> None:
    while True:
        message = await user.receive()
        if message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes")
        if data is not None:
            await terminal.send(data)
        elif message.get("text") is not None:
            await terminal.send(message["text"])


async def _carry_out(user: WebSocket, terminal: Terminal) -> None:
    with suppress(WebSocketDisconnect, RuntimeError):
        async for frame in terminal:
            if isinstance(frame, bytes):
                await user.send_bytes(frame)
            else:
                await user.send_text(frame)


async def say_error(user: WebSocket, error: PenstockError) -> None:
    """Tell the user's terminal why it ends, in the language of a page where one asks."""
    told = ExecControl(type="error", reason=refusals.said_to(user, error), status=error.http_status)
    with suppress(WebSocketDisconnect, RuntimeError):
        await user.send_text(told.model_dump_json())
