"""The endpoint that the edge asks, for every request, whether it may pass to an app and where that is.

nginx's auth_request understands 200, 401 and 403 and nothing else, so what is really meant stands in headers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.clock import now
from api.endpoints import auditing
from api.endpoints.access import (
    APP_COOKIE,
    Agent,
    KnownCallerOf,
    SettingsOf,
    action,
    check_speaks_for,
    for_agents,
    public,
)
from api.endpoints.routes import Route, Router
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.resources.apps import callers, entrance, service
from api.resources.apps.service import AppIndex
from api.resources.logins import callers as known_callers
from api.settings import Settings
from common.app_protocol import APP_CALLERS_PATH, AppCallersReply, AppCallersReport
from common.errors import ForbiddenError, NotFoundError, UnauthenticatedError, UnavailableError

ORIGINAL_URI = "X-Original-URI"
STATE_COOKIE = "__Host-penstock_state"
"""The cookie that tells the browser that asked for an app from any other that has its ticket."""
ENDED = "This address counts once, and for a minute. Open the app again: by its own address, or from the console.\n"
MAX_TICKET = 128
_UNSEEN = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
MAX_REASON = 500
"""Characters of a reason, which may quote what a client sent."""


class EdgeRoute(Route):
    """Says no in the words that the edge understands."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except UnauthenticatedError:
                return _stranger(request)
            except NotFoundError:
                return _no(404)
            except UnavailableError:
                return _no(503)
            except ForbiddenError as error:
                (problem,) = error.problems
                # who may open no app at all learns as little as who may not open this one
                return _no(403, reason=f"{problem.reason}: {problem.hint}") if problem.where else _no(404)

        return answer


async def index_of(connection: HTTPConnection) -> AppIndex:
    """Return the application's index of apps."""
    index: AppIndex = connection.app.state.apps
    return index


router = Router(prefix="/apps", tags=["apps"], route_class=EdgeRoute)
agents = Router(tags=["agents"])


@router.get("/authorize", include_in_schema=False)
@action(Action.APP_OPEN, for_the_edge=True)
async def authorize(
    *,
    request: Request,
    known: KnownCallerOf,
    db: Reading,
    index: Annotated[AppIndex, Depends(index_of)],
    settings: SettingsOf,
    uri: Annotated[str, Header(alias=ORIGINAL_URI, pattern=r"^/[^\x00-\x20]*$", max_length=16_384)],
) -> Response:
    """Tell the edge where the app of a request is and what it shall see of the request."""
    headers, caller = request.headers, known.identity
    host = headers.get("host", "")
    named = settings.apps.named(host)
    auditing.about(request, f"apps/{named.label if named else service.name_in(uri)}")
    service.check_origin(headers.get("origin"), host)
    if named:
        if "origin" not in headers:
            service.check_fetched(*(headers.get(f"sec-fetch-{name}") for name in ("site", "mode", "dest")))
        service.check_worker(headers.get("service-worker"), uri)
        app = await index.find_named(db, named)
    else:
        app = await index.find(db, uri)
    service.check(app, caller)
    if settings.apps.name and not named:
        # where each app has an origin of its own, none is at that of all
        return _no(302, settings.apps.origin(app.name.label) + service.inner_uri(app, uri))
    if service.lacks_slash(app, uri) and "text/html" in headers.get("accept", ""):
        _, mark, query = uri.partition("?")
        return _no(302, f"{app.prefix}/{mark}{query}")
    return Response(
        headers={
            "X-Upstream": app.upstream,
            "X-Upstream-Name": app.node,
            "X-Upstream-Container": app.container,
            "X-Upstream-Uri": service.inner_uri(app, uri),
            "X-Upstream-Prefix": app.prefix if app.stripped else "",
            "X-Upstream-Cookie-Path": app.prefix,
            "X-Upstream-Cookie": service.app_cookies(headers.get("cookie", "")),
            "X-Upstream-User": caller.name,
            "X-Upstream-Caller": known.name,
        }
    )


@router.get("/enter", include_in_schema=False)
@public
async def enter(
    *,
    request: Request,
    db: Transaction,
    settings: SettingsOf,
    ticket: Annotated[str, Query(max_length=MAX_TICKET)],
    to: Annotated[str, Query(pattern=rf"^{entrance.PLACE}$", max_length=16_384)] = "/",
) -> Response:
    """Let a browser into an app with a name of its own that comes from the console with a ticket, once.

    The edge asks for what is called at the app's own host, which alone gets the cookie.
    """
    app, at = settings.apps.named(request.headers.get("host", "")), now()
    state = request.cookies.get(STATE_COOKIE, "")
    answer = Response(status_code=303, headers={"Location": to, **_UNSEEN})
    if app and state and (secret := await entrance.redeem(db, ticket, state, app, at)):
        answer.headers.append("Set-Cookie", _cookie(APP_COOKIE, secret))
        return answer
    # of pages that a browser opens at once, all but one were sent for a ticket by a state that it has no more: they go
    # again, by the one that it has
    if app and state and await entrance.is_anothers(db, ticket, app, at):
        return answer
    return PlainTextResponse(ENDED, status_code=403, headers=_UNSEEN)


@agents.post(APP_CALLERS_PATH, response_model_exclude_defaults=True)
@for_agents
async def review_app_callers(
    message: AppCallersReport, agent: Agent, database: DatabaseOf, settings: SettingsOf
) -> AppCallersReply:
    """Tell an agent which of the open connections to apps have to end, as who has them may open the app no longer."""
    check_speaks_for(agent, message.name)
    at = now()
    async with database.reading() as db:
        leave, staying = await callers.leavers(db, message.callers, at, settings.login_idle_s)
    if stale := [known for known in staying if not known.is_noted(at)]:
        async with database.transaction() as db:
            for known in stale:
                await known_callers.note_use(db, known, at)
    return AppCallersReply(leave=leave, interval_s=settings.heartbeat_interval_s)


def _stranger(request: Request) -> Response:
    """Return where somebody signs in who is not known: at the console, from which the way back is another one by name.

    Whoever has no login at an app with a name of its own may well have one at the console.
    """
    settings: Settings = request.app.state.settings
    host, uri = request.headers.get("host", ""), request.headers.get(ORIGINAL_URI, "/")
    if not settings.apps.named(host):
        return Response(status_code=401, headers={"X-Location": service.login_path(host, uri)})
    state = entrance.new_state(request.cookies.get(STATE_COOKIE, ""))
    location = entrance.path(host, uri, state)
    return Response(status_code=401, headers={"X-Location": location, "X-Cookie": _cookie(STATE_COOKIE, state)})


def _cookie(name: str, secret: str) -> str:
    """Return a cookie of this host alone, for as long as the browser runs; it is worth as long as the login is."""
    return f"{name}={secret}; Path=/; Secure; HttpOnly; SameSite=Lax"


def _no(meant: int, location: str = "", reason: str = "") -> Response:
    told = reason[:MAX_REASON].encode("ascii", "replace").decode()
    return Response(status_code=403, headers={"X-Status": str(meant), "X-Location": location, "X-Reason": told})
