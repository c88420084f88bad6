"""Endpoints of the audit log. Whoever reads it leaves a line there, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from weakref import WeakValueDictionary

from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection

from api.auth.identity import Identity
from api.auth.policy import Action
from api.control import audit_heads
from api.control.manager import WakeAfterwards
from api.endpoints import auditing
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import DatabaseOf, Transaction
from api.engine.base import AgentAddress, Engine
from api.lists import texts
from api.resources.audit import service
from api.resources.audit.log_files import LogFiles
from api.resources.audit.schemas import AuditEntryView, AuditFileView, AuditFindingView, AuditVerificationView
from api.resources.audit.service import Search
from api.resources.nodes import service as nodes
from api.resources.schemas import PLACE, Done, Moment, NameQuery
from common.errors import UnavailableError
from common.hints import hinted
from common.sentence import Sentence, Several

router = Router(prefix="/audit", tags=["audit"])

PAGE, MAX_PAGE = 200, 1000
AT_ONCE = 2
"""So many searches run at a time: they read files and take a core each. Of a domain, or a person of the site, one."""
FINDINGS = 1000
"""So many findings are told; of the others how many there are."""


class Turns:
    """Turns to search, which come in order; whoever asks for many waits for the own ones, and keeps nobody waiting."""

    def __init__(self) -> None:
        """Begin with all turns free."""
        self._all = asyncio.Semaphore(AT_ONCE)
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, caller: Identity) -> AsyncIterator[None]:
        """Wait for a turn of the caller's domain, or of a caller of the site, and have it."""
        own = self._own.setdefault(caller.domain or str(caller.id), asyncio.Lock())
        async with own, self._all:
            yield


WHO, WHAT = r"^[^\x00-\x1f\x7f\uFFFD]{1,64}$", r"^[^\x00-\x1f\x7f\uFFFD]{1,256}$"
"""Names of users and of what was done to, in any script: a name that was tried stands in the log as it was.

Bytes that are no text are read as U+FFFD.
"""

DayPath = Annotated[
    str,
    Path(pattern=r"^\d{8}(-\d{8})*$", max_length=200),
    hinted(Sentence("write it as the list of files does"), Sentence("is no day of a file")),
]
_SHORTER = hinted(Sentence("write 1 to {most} characters, and no control characters", most=64))
_LONGER = hinted(Sentence("write 1 to {most} characters, and no control characters", most=256))
_ACTION = hinted(Sentence("write one such as {example}", example="session_delete"), Sentence("is no action"))
_RESULT = hinted(Sentence("write {names}", names=Several(("done", "refused", "failed"))), Sentence("is no result"))


async def log_of(connection: HTTPConnection) -> LogFiles:
    """Return the audit log; raises UnavailableError where none is kept."""
    log: LogFiles | None = connection.app.state.audit_log
    if log is None:
        raise UnavailableError(
            "this API keeps no audit log", where="audit_folder", hint="set PENSTOCK_API_AUDIT_FOLDER and _AUDIT_KEY"
        )
    return log


async def turn_of(connection: HTTPConnection, caller: Caller) -> AsyncIterator[None]:
    """Wait for a turn to search, before anything of the database is held."""
    turns: Turns = connection.app.state.audit_searches
    async with turns.of(caller):
        yield


Log = Annotated[LogFiles, Depends(log_of)]
Turn = Annotated[None, Depends(turn_of)]


@router.get("", responses={200: {"headers": {"X-Next": texts.HEADERS["X-Next"]}}})
@action(Action.AUDIT_READ)
async def list_audit(
    *,
    caller: Caller,
    log: Log,
    response: Response,
    _turn: Turn,
    _told: Transaction,
    user: Annotated[str | None, Query(pattern=WHO), _SHORTER] = None,
    object_: Annotated[str | None, Query(alias="object", pattern=WHAT), _LONGER] = None,
    project: NameQuery | None = None,
    act: Annotated[str | None, Query(alias="action", max_length=64, pattern=r"^[a-z_]+$"), _ACTION] = None,
    result: Annotated[str | None, Query(pattern=r"^(done|refused|failed)$"), _RESULT] = None,
    node: NameQuery | None = None,
    since: Annotated[Moment | None, Query()] = None,
    until: Annotated[Moment | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
    after: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$"), PLACE] = None,
) -> list[AuditEntryView]:
    """List who did what, newest first: by user, object such as `projects/vision`, action, result, node and time.

    Where there are more, `X-Next` is what to send as `after` to get those that follow. A line may be some seconds late.
    """
    wanted = Search(user, object_, project, act, result, node, since, until)
    entries, following = await service.search(log, wanted, caller, limit=limit, before=int(after) if after else None)
    if following:
        response.headers["X-Next"] = str(following)
    return [AuditEntryView.model_validate(entry) for entry in entries]


@router.get("/verification")
@action(Action.AUDIT_OVERSEE)
async def verify_audit(log: Log, _turn: Turn, database: DatabaseOf, request: Request) -> AuditVerificationView:
    """Verify the whole log: name every line that was changed, removed, put in, moved or cut off.

    Every node keeps how far it has seen the log go; `unheard` are those that do not say so now.
    """
    engine: Engine = request.app.state.engine
    async with database.reading() as db:
        every = await nodes.every(db)
    seen, unheard = await audit_heads.ask(engine, [AgentAddress(one.name, one.address, one.port) for one in every])
    async with database.reading() as db:
        found = await service.verify(db, log, seen)
    return AuditVerificationView(
        ok=found.ok,
        lines=found.lines,
        last=found.head.seq,
        findings=[AuditFindingView.model_validate(one) for one in found.findings[:FINDINGS]],
        more_findings=max(len(found.findings) - FINDINGS, 0),
        deleted=found.deleted,
        unheard=unheard,
    )


@router.get("/files")
@action(Action.AUDIT_OVERSEE)
async def list_audit_files(log: Log, _told: Transaction) -> list[AuditFileView]:
    """List the files of the log, one a day."""
    return [AuditFileView.model_validate(day) for day in await asyncio.to_thread(log.days)]


@router.get("/files/{day}", response_class=Response, responses={200: {"content": {"application/jsonl": {}}}})
@action(Action.AUDIT_OVERSEE)
async def download_audit_file(day: DayPath, log: Log, _told: Transaction) -> Response:
    """Download the file of a day as it is: JSON lines, each with its code."""
    service.require_day(log, day)
    return StreamingResponse(log.parts(day), media_type="application/jsonl")


@router.delete("/files/{day}")
@action(Action.AUDIT_DELETE)
async def delete_audit_file(
    day: DayPath, log: Log, connection: HTTPConnection, database: DatabaseOf, _wake: WakeAfterwards
) -> Done:
    """Delete the file of a day that is over, when the log says who did so, and which lines it had."""
    sealed = await service.seal_deletion(log, day)
    async with database.transaction() as db:
        await auditing.record(db, connection, **sealed)
    return Done()
