"""Endpoints of the site's logs. Whoever reads them leaves a line in the audit log."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Query, Response
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import DatabaseOf
from api.lists import texts
from api.resources.logs import hash_table, search, senders
from api.resources.logs.schemas import LogEntryView
from api.resources.logs.search import Search
from api.resources.schemas import PLACE, Moment, NameQuery
from api.resources.sessions import service as sessions
from common import process
from common.errors import ConflictError
from common.hints import hinted
from common.sentence import Sentence

router = Router(prefix="/logs", tags=["logs"])

PAGE, MAX_PAGE = 200, 1000
AT_ONCE = 2
"""So many searches run at a time: they read the disk of the master."""
_word = r"^[0-9A-Za-z][0-9A-Za-z@:._-]{0,127}$"

Word = Annotated[
    str,
    Query(pattern=_word),
    hinted(Sentence("write letters, digits and @ : . _ -, {most} at most", most=128)),
]
Level = Literal["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"]


@router.get("", responses={200: {"headers": {"X-Next": texts.HEADERS["X-Next"]}}})
@action(Action.LOGS_READ)
async def list_logs(
    *,
    caller: Caller,
    settings: SettingsOf,
    response: Response,
    connection: HTTPConnection,
    database: DatabaseOf,
    request: Word | None = None,
    session: Word | None = None,
    project: NameQuery | None = None,
    user: Word | None = None,
    node: Word | None = None,
    unit: Word | None = None,
    level: Level | None = None,
    since: Annotated[Moment | None, Query()] = None,
    until: Annotated[Moment | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
    after: Annotated[str | None, Query(pattern=r"^[0-9a-z=;]{1,256}$"), PLACE] = None,
) -> list[LogEntryView]:
    """List what services of all nodes have logged, newest first: of a request, a session, a user, a node, a unit.

    A session is named by its id, or by its name and its project. Where there may be more, `X-Next` is what to send as
    `after` to get those that follow.
    """
    if settings.logs_folder is None:
        raise ConflictError(
            "the logs of this site stay on its nodes",
            where="logs",
            hint="set `logs.gather` in the site file, and deploy",
        )
    if session and project:
        async with database.reading() as db:
            session = str((await sessions.get(db, project, session, caller)).id)
    wanted = Search(request, session, user, unit, node, level, since, until)
    known = await asyncio.to_thread(senders.names, settings.logs_folder)
    if not known:
        return []
    turns: asyncio.Semaphore = connection.app.state.log_searches
    async with turns:
        files = await asyncio.to_thread(hash_table.patterns, settings.logs_folder, search.rare(wanted))
        if not files:
            return []
        words = search.command(files, wanted, limit, after)
        printed = await asyncio.to_thread(process.run, words, hint="look at `penstock-api` in the master's journal")
    found = list(search.entries(printed, known, node))
    if following := search.last(found, limit):
        response.headers["X-Next"] = following
    return [entry for _, entry in found if entry]
