"""The audit log: who did what, from where, with what result. Whoever looks leaves a line there, too."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import Router
from api.endpoints import audit_log
from api.endpoints.access import Caller, action
from api.endpoints.audit_log import Log, Turn
from api.endpoints.transactions import Transaction

SHOWN = 100
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

    user: Annotated[str | None, Field(pattern=r"^[!-~]{1,64}$")] = None
    object: Annotated[str | None, Field(pattern=r"^[!-~]{1,256}$")] = None
    project: Annotated[str | None, Field(pattern=r"^[a-z0-9-]{1,20}$")] = None
    action: Annotated[str | None, Field(max_length=64, pattern=r"^[a-z_]+$")] = None
    result: Annotated[str | None, Field(pattern=r"^(done|refused|failed)$")] = None
    node: Annotated[str | None, Field(pattern=r"^[a-z0-9-]{1,63}$")] = None
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
    filled: dict[str, Any] = {name: value for name, value in search.model_dump().items() if value}
    if search.since:
        filled["since"] = f"{search.since}T00:00:00Z"
    if search.until:
        filled["until"] = f"{search.until}T23:59:59.999999Z"
    wanted = forms.checked(SearchRequest, filled)
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
        "search": search,
        "older": request.url.include_query_params(after=answer.headers["X-Next"]).query
        if "X-Next" in answer.headers
        else "",
        "newest": request.url.remove_query_params("after").query if search.after else None,
        "actions": [each.name.lower() for each in Action],
        "results": RESULTS,
    }
    return pages.page(request, "audit.html", values)
