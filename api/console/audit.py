"""The audit log: who did what, from where, with what result, and its files. Whoever looks leaves a line there, too."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field, ValidationError

from api.auth.policy import Action
from api.console import pages
from api.console.routes import Router
from api.endpoints import audit_log
from api.endpoints.access import Caller, action, check_origin
from api.endpoints.audit_log import WHAT, WHO, Log, Turn
from api.endpoints.transactions import DatabaseOf, Transaction
from api.resources.audit.schemas import AuditVerificationView

SHOWN = 100
LOWER = {"project", "action", "node"}
"""Names that have no capital letters."""
RESULTS = ("done", "refused", "failed")

router = Router(prefix="/audit")
Word = Annotated[str, Field(max_length=256)]


class SearchForm(BaseModel):
    """What is looked for, as a browser sends it: what is empty is any. Days are in UTC, and `until` is within."""

    user: Word = ""
    object: Word = ""
    project: Word = ""
    action: Word = ""
    result: Word = ""
    node: Word = ""
    since: Word = ""
    until: Word = ""
    after: Word = ""


class SearchRequest(BaseModel):
    """What is looked for."""

    user: Annotated[str | None, Field(pattern=WHO)] = None
    object: Annotated[str | None, Field(pattern=WHAT)] = None
    project: Annotated[str | None, Field(pattern=r"^[a-z0-9-]{1,20}$")] = None
    action: Annotated[str | None, Field(max_length=64, pattern=r"^[a-z_]+$")] = None
    result: Annotated[str | None, Field(pattern=r"^(done|refused|failed)$")] = None
    node: Annotated[str | None, Field(pattern=r"^[a-z0-9.-]{1,63}$")] = None
    since: datetime | None = None
    until: datetime | None = None
    after: Annotated[str | None, Field(pattern=r"^[0-9]{1,18}$")] = None


@router.get("")
@action(Action.AUDIT_READ)
async def list_audit(
    *,
    request: Request,
    caller: Caller,
    log: Log,
    turn: Turn,
    told: Transaction,
    search: Annotated[SearchForm, Query()],
) -> Response:
    """Show who did what, the newest first."""
    about: dict[str, Any] = {
        "search": search,
        "actions": [each.name.lower() for each in Action],
        "results": RESULTS,
        "wrong": set(),
    }
    try:
        wanted = SearchRequest.model_validate(_filled(search))
    except ValidationError as error:
        about["wrong"] = {str(problem["loc"][0]) for problem in error.errors()}
        return pages.page(request, "audit.html", about | {"entries": [], "older": "", "newest": None}, status=422)
    answer = Response()
    entries = await audit_log.list_audit(
        caller=caller,
        log=log,
        response=answer,
        _turn=turn,
        _told=told,
        user=wanted.user,
        object_=wanted.object,
        project=wanted.project,
        act=wanted.action,
        result=wanted.result,
        node=wanted.node,
        since=wanted.since,
        until=wanted.until,
        limit=SHOWN,
        after=wanted.after,
    )
    values = {
        "entries": entries,
        "older": request.url.include_query_params(after=answer.headers["X-Next"]).query
        if "X-Next" in answer.headers
        else "",
        "newest": request.url.remove_query_params("after").query if search.after else None,
    }
    return pages.page(request, "audit.html", about | values)


@router.get("/files")
@action(Action.AUDIT_OVERSEE)
async def list_audit_files(request: Request, log: Log, told: Transaction) -> Response:
    """Show the files of the log, the newest first."""
    return await _files(request, log, told, None)


@router.get("/verification")
@action(Action.AUDIT_OVERSEE)
async def verify_audit(request: Request, log: Log, turn: Turn, database: DatabaseOf) -> Response:
    """Verify the whole log, and show what comes of it: for pages of ours, since it reads all that was ever written."""
    check_origin(request)
    found = await audit_log.verify_audit(log, turn, database, request)
    if pages.is_part(request):
        return pages.page(request, "audit_verification.html", {"found": found})
    return await _files(request, log, None, found)


async def _files(request: Request, log: Log, told: Any, found: AuditVerificationView | None) -> Response:
    files = reversed(await audit_log.list_audit_files(log, told))
    return pages.page(request, "audit_files.html", {"files": list(files), "found": found})


def _filled(search: SearchForm) -> dict[str, Any]:
    """Return what somebody has filled in, as names are written."""
    filled = {name: word for name, value in search.model_dump().items() if (word := value.strip())}
    for name in filled.keys() & LOWER:
        filled[name] = filled[name].lower()
    for name, end in (("since", "T00:00:00Z"), ("until", "T23:59:59.999999Z")):
        if name in filled:
            filled[name] += end
    return filled
