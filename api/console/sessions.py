"""The list of sessions: newest first, searched by words, by state with how many are in each."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from api.auth.policy import Action
from api.console import formats, pages
from api.console.routes import Router
from api.console.texts import current, gettext
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading
from api.lists import session_pages, session_search, stamps
from api.lists.session_search import Search
from api.resources.schemas import PLACE
from api.tables.sessions import Session, State

SHOWN = 50

router = Router()


@router.get("/sessions")
@action(Action.SESSION_READ)
async def list_sessions(
    *,
    request: Request,
    caller: Caller,
    db: Reading,
    q: Annotated[str, Query(max_length=100)] = "",
    mine: bool = False,
    state: State | None = None,
    before: Annotated[str | None, Query(max_length=64, pattern=r"^[0-9]{1,16}\.[0-9a-f]{32}$"), PLACE] = None,
) -> Response:
    """Show the sessions that the caller sees: those in a state, or all but what was taken off the lists."""
    # those that were taken off the lists are in no stamp, and are shown where they are asked for alone
    stamp = ""
    if state is not State.TERMINATED:
        # all that the part is made of: whoever sees the same sessions in the same language sees the same part
        seen = session_pages.seen(caller), caller.id if mine else None, current.get()
        stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Session), *seen, request.url)
    if answer := pages.unchanged(request, stamp):
        return answer
    search = Search(q.replace("\0", ""), mine, [state] if state else [])
    found = await session_search.lines(db, caller, search, limit=SHOWN, before=before)
    counts = found.counts
    asked = {name: value for name, value in (("q", q), ("mine", "1" if mine else "")) if value}
    listed = sum(count for each, count in counts.items() if each is not State.TERMINATED)
    tabs = [(_address(asked), gettext("all"), listed, state is None)]
    tabs += [
        (_address(asked | {"state": each.value}), formats.name(each), counts.get(each, 0), state is each)
        for each in State
        if each in counts or state is each
    ]
    older = ({"state": state.value} if state else {}) | {"before": found.before or ""}
    values = {
        "q": q,
        "mine": mine,
        "state": state,
        "tabs": tabs,
        "sessions": found.lines,
        "next": _address(asked | older) if found.before else "",
    }
    return await pages.live(request, "sessions.html", "sessions_live.html", values, stamp=stamp, shared=True)


def _address(asked: dict[str, str]) -> str:
    return f"/sessions?{urlencode(asked)}" if asked else "/sessions"
