"""Access: who calls, and whether the endpoint is for the caller at all. What has no mark is refused."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from starlette.types import Scope
from structlog.contextvars import bind_contextvars

from api.auth import passwords
from api.auth.identity import Identity
from api.auth.policy import Action
from api.auth.workers import Workers
from api.clock import now
from api.database import Database
from api.resources.logins import callers
from api.resources.logins.callers import KnownCaller
from api.resources.nodes.heartbeats import Sender
from api.settings import Settings
from common.app_addresses import AppName
from common.errors import ForbiddenError, PenstockError, UnauthenticatedError
from common.protocol import MACHINE_HEADER, PROTOCOL_HEADER, TIME_HEADER
from common.repair_protocol import CONTROLLER
from common.sentence import Sentence

_PREFIX_OF_HOST = "__Host-"
COOKIE = f"{_PREFIX_OF_HOST}penstock_session"
"""The cookie of a login. A browser takes one with this prefix from nobody but this host, and only encrypted."""
APP_COOKIE = f"{_PREFIX_OF_HOST}penstock_app"
"""The cookie of a login at an app with a name of its own, which that host alone is sent."""
CSRF_HEADER = "X-CSRF-Token"
SEEN_HEADER = "X-Seen"
"""In which a page that is open says what it shows already, as it asks by itself again and again."""
PREFIX = "/api/v1"
MAX_OFFSET_S = 2.0**30
"""As far off as a clock is said to be."""
MAX_DIGITS = 6
"""Of the number of a protocol."""
MAX_MACHINE = 128
"""Characters of the text that tells one machine from others."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_BEFORE_NEW_PASSWORD = (Action.ACCOUNT_READ, Action.ACCOUNT_PASSWORD, Action.ACCOUNT_LOGOUT)
"""What a user may do who has to change the password first."""

EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])
_public: set[Callable[..., Any]] = set()
_for_agents: set[Callable[..., Any]] = set()
_for_controller: set[Callable[..., Any]] = set()
_for_the_edge: set[Callable[..., Any]] = set()
_pages: set[Callable[..., Any]] = set()
_actions: dict[Callable[..., Any], Action] = {}


def public(endpoint: EndpointT) -> EndpointT:
    """Let anybody call this endpoint."""
    _public.add(endpoint)
    return endpoint


def for_agents(endpoint: EndpointT) -> EndpointT:
    """Let only node agents call this endpoint, by their certificates."""
    _for_agents.add(endpoint)
    return endpoint


def for_controller(endpoint: EndpointT) -> EndpointT:
    """Let only the controller of the site call this endpoint, by its own certificate."""
    _for_controller.add(endpoint)
    return endpoint


def action(wanted: Action, *, for_the_edge: bool = False) -> Callable[[EndpointT], EndpointT]:
    """Let those call this endpoint for whom the policy has a rule; the service checks how far the rule reaches.

    With `for_the_edge` the edge asks for a browser that is on its way to an app, so pages of other origins may use the
    login here. Such an endpoint must change nothing and tell the page nothing.
    """

    def mark(endpoint: EndpointT) -> EndpointT:
        _actions[endpoint] = wanted
        if for_the_edge:
            _for_the_edge.add(endpoint)
        return endpoint

    return mark


def action_of(endpoint: Callable[..., Any] | None) -> Action | None:
    """Return the action that an endpoint is marked with."""
    return _actions.get(endpoint) if endpoint else None


def is_public(endpoint: Callable[..., Any]) -> bool:
    """Return whether anybody may call an endpoint."""
    return endpoint in _public


def note_page(endpoint: Callable[..., Any]) -> None:
    """Let browsers go to an endpoint from links on other sites, and a page that is open ask it again and again.

    It may only show something, and to the caller alone.
    """
    _pages.add(endpoint)


def is_for_agents(endpoint: Callable[..., Any] | None) -> bool:
    """Return whether only node agents, or the controller, may call an endpoint: by a certificate of the site."""
    return endpoint in _for_agents or endpoint in _for_controller


def is_for_the_edge(endpoint: Callable[..., Any] | None) -> bool:
    """Return whether the edge asks an endpoint for browsers that are on their way to an app."""
    return endpoint in _for_the_edge


def check_routes(app: FastAPI) -> None:
    """Refuse to start with a route that nobody has decided on; raises PenstockError that names them."""
    marked = _public | _for_agents | _for_controller | _actions.keys()
    undecided = [
        str(context.path)
        for context in iter_route_contexts(app.routes)
        if not isinstance(context.original_route, Mount) and context.endpoint not in marked
    ]
    if undecided:
        raise PenstockError(
            "nobody has decided who may call this", where=", ".join(undecided), hint="mark the endpoint with @action"
        )


async def authorize(connection: HTTPConnection) -> None:
    """Let nobody pass who is not known, or for whom the policy has no rule."""
    endpoint = connection.scope.get("endpoint")
    if endpoint in _public:
        return
    if endpoint in _for_agents:
        connection.state.agent = agent_of_certificate(connection)
        return
    if endpoint in _for_controller:
        _check_controller(connection)
        return
    known = connection.state.known = await _identify(connection)
    bind_contextvars(caller=known.identity.name)
    wanted = action_of(endpoint)
    if wanted is None or not known.identity.allows(wanted):
        raise known.identity.refusal(wanted) if wanted else ForbiddenError("nobody may call this")
    if known.must_change_password and wanted not in _BEFORE_NEW_PASSWORD:
        raise ForbiddenError(
            Sentence("you have to change your password first"),
            where="password",
            hint=Sentence("change it: POST /api/v1/auth/password"),
        )


async def settings_of(connection: HTTPConnection) -> Settings:
    """Return the application's settings."""
    return _settings(connection)


async def known_of(connection: HTTPConnection) -> KnownCaller:
    """Return what `authorize` has found of the caller, with the login or key used."""
    known: KnownCaller = connection.state.known
    return known


async def caller_of(connection: HTTPConnection) -> Identity:
    """Return the caller that `authorize` has identified."""
    return (await known_of(connection)).identity


async def agent_of(connection: HTTPConnection) -> str:
    """Return the name of the node whose agent calls, as `authorize` has found it."""
    agent: str = connection.state.agent
    return agent


def check_speaks_for(agent: str, name: str) -> None:
    """Refuse what an agent says of another node than that of its certificate; raises ForbiddenError."""
    if name != agent:
        raise ForbiddenError(
            f"the certificate of {agent} cannot speak for {name}",
            where="name",
            hint="set PENSTOCK_AGENT_NAME to the name in the certificate",
        )


KnownCallerOf = Annotated[KnownCaller, Depends(known_of)]
Caller = Annotated[Identity, Depends(caller_of)]
Agent = Annotated[str, Depends(agent_of)]
SettingsOf = Annotated[Settings, Depends(settings_of)]


def is_secure(connection: HTTPConnection) -> bool:
    """Return whether the caller's way here is encrypted, so far as the edge or this server says."""
    return connection.url.scheme in ("https", "wss")


def cookie_name(connection: HTTPConnection) -> str:
    """Return what the cookie of a login is called; without TLS, as developers serve, browsers take no such prefix."""
    return COOKIE if is_secure(connection) else COOKIE.removeprefix(_PREFIX_OF_HOST)


def csrf_token(secret: str) -> str:
    """Return the token that a page of ours sends with a login's cookie when it changes something.

    It is made from the cookie, which no script can read, so it holds for this login only and nobody keeps it.
    """
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def _settings(connection: HTTPConnection) -> Settings:
    settings: Settings = connection.app.state.settings
    return settings


def shown_key(connection: HTTPConnection) -> str:
    """Return the API key that a caller shows, whether or not it is one; empty where none is shown."""
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def shown_cookie(connection: HTTPConnection) -> str:
    """Return the cookie of a login that a caller shows, likewise."""
    return connection.cookies.get(cookie_name(connection), "")


async def _identify(connection: HTTPConnection) -> KnownCaller:
    database: Database = connection.app.state.database
    key, cookie = shown_key(connection), shown_cookie(connection)
    known: KnownCaller | None = None
    at = now()
    if key:
        async with database.reading() as db:
            known = await callers.by_key(db, passwords.fingerprint(key), at)
    elif app := _app_of(connection):
        known = await _at_app(connection, app, at)
    elif cookie:
        if connection.scope.get("endpoint") not in _for_the_edge:
            _check_page(connection, cookie)
        async with database.reading() as db:
            idle_s = _settings(connection).login_idle_s
            known = await callers.by_cookie(db, passwords.fingerprint(cookie), at, idle_s)
    if known is None:
        raise UnauthenticatedError(
            Sentence("the caller is not signed in"), hint=Sentence("sign in, or send a valid API key")
        )
    if not known.is_noted(at) and not _asks_by_itself(connection):
        async with database.transaction() as db:
            await callers.note_use(db, known, at)
    return known


def _app_of(connection: HTTPConnection) -> AppName | None:
    """Return which app with a name of its own the edge asks for: there its own cookie counts, and no other."""
    if connection.scope.get("endpoint") not in _for_the_edge:
        return None
    return _settings(connection).apps.named(connection.headers.get("host", ""))


async def _at_app(connection: HTTPConnection, app: AppName, at: datetime) -> KnownCaller | None:
    cookie = connection.cookies.get(APP_COOKIE)
    if not cookie:
        return None
    database: Database = connection.app.state.database
    idle_s = _settings(connection).login_idle_s
    async with database.reading() as db:
        return await callers.by_app_cookie(db, passwords.fingerprint(cookie), app, at, idle_s)


def _check_page(connection: HTTPConnection, cookie: str) -> None:
    """Let only pages of our own origin use the cookie: the apps of sessions have the same host, another port."""
    is_websocket = connection.scope["type"] == "websocket"
    if is_websocket and "origin" not in connection.headers:
        raise ForbiddenError(
            Sentence("a login's cookie is for browsers, which send an Origin"), hint=Sentence("send an API key")
        )
    is_safe = is_websocket or connection.scope["method"] in SAFE_METHODS
    if _is_gone_to(connection):
        return
    check_origin(connection)
    if is_safe:
        return
    token = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(token.encode(), csrf_token(cookie).encode()):
        if "hx-request" in connection.headers:
            reason = Sentence("this browser has signed in anew since the page was loaded")
            raise ForbiddenError(reason, where=CSRF_HEADER, hint=Sentence("load the page again"))
        raise ForbiddenError(
            Sentence("the request does not show that a page of ours makes it"),
            where=CSRF_HEADER,
            hint=Sentence("send the csrf_token of the login, which GET /api/v1/auth/csrf shows too"),
        )


def _is_page(connection: HTTPConnection) -> bool:
    scope = connection.scope
    return scope.get("endpoint") in _pages and scope.get("method") == "GET"


def _is_gone_to(connection: HTTPConnection) -> bool:
    """Return whether a browser goes to a page with all of its window: where it comes from sees nothing of it."""
    asked = connection.headers.get("sec-fetch-mode"), connection.headers.get("sec-fetch-dest")
    return _is_page(connection) and asked == ("navigate", "document")


def _asks_by_itself(connection: HTTPConnection) -> bool:
    """Return whether a page that is open asks whether it is as it was: nobody uses it, and its login ends as others do.

    Whoever has a key is no page.
    """
    return _is_page(connection) and SEEN_HEADER in connection.headers and "authorization" not in connection.headers


def check_origin(connection: HTTPConnection) -> None:
    """Let no page of another origin use a login, or make one; raises ForbiddenError. Programs send no Origin."""
    origin = connection.headers.get("origin")
    fetched_by = connection.headers.get("sec-fetch-site", "same-origin")
    if origin is not None and origin != _own_origin(connection):
        raise ForbiddenError(
            Sentence("a page of {origin} may not use this login", origin=origin),
            hint=Sentence("use the site's own pages"),
        )
    if fetched_by not in ("same-origin", "none"):
        raise ForbiddenError(
            Sentence("a page of another origin may not use this login"), hint=Sentence("use the site's own pages")
        )


def _own_origin(connection: HTTPConnection) -> str:
    """Return the origin of our own pages, as the browser that calls knows it."""
    scheme = "https" if is_secure(connection) else "http"
    return f"{scheme}://{connection.headers.get('host', '')}"


def is_behind_edge(scope: Scope) -> bool:
    """Return whether headers that only our own edge may send are its own."""
    settings: Settings = scope["app"].state.settings
    return settings.trusts_client_headers


def clock_offset_s(connection: HTTPConnection, at: datetime) -> float:
    """Return how far the clock of an agent that calls is ahead of ours, in seconds; 0 where it does not tell."""
    try:
        sent_s = float(connection.headers[TIME_HEADER])
    except (KeyError, ValueError):
        return 0.0
    return max(-MAX_OFFSET_S, min(sent_s - at.timestamp(), MAX_OFFSET_S)) if math.isfinite(sent_s) else 0.0


def protocol_of_agent(connection: HTTPConnection) -> int:
    """Return the protocol that an agent speaks, by its heartbeat; 0 where it does not tell."""
    told = connection.headers.get(PROTOCOL_HEADER, "")
    return int(told) if told.isascii() and told.isdigit() and len(told) <= MAX_DIGITS else 0


def sender_of(connection: HTTPConnection) -> Sender:
    """Return which machine sends a heartbeat; empty where an agent of an earlier release does not tell."""
    address = connection.client.host if connection.client else ""
    return Sender(connection.headers.get(MACHINE_HEADER, "")[:MAX_MACHINE], address)


def agent_of_certificate(connection: HTTPConnection) -> str:
    """Return the name in an agent's certificate.

    Raises UnauthenticatedError where there is none, ForbiddenError where it is no worker of the site.
    """
    name = certificate_of(connection)
    if not name:
        raise UnauthenticatedError(
            "this is for node agents with a certificate of the site", hint="call with the node's certificate"
        )
    workers: Workers = connection.app.state.workers
    if not workers.has(name):
        raise ForbiddenError(
            f"{name} is not a worker of this site",
            where="certificate",
            hint="give the node the role worker in `site.yml`, and deploy the site",
        )
    return name


def _check_controller(connection: HTTPConnection) -> None:
    """Let nobody pass but the controller of the site; raises UnauthenticatedError."""
    if certificate_of(connection) != CONTROLLER:
        raise UnauthenticatedError(
            "this is for the controller of the site", hint="call with the controller's own certificate"
        )


def certificate_of(connection: HTTPConnection) -> str:
    """Return the name in the certificate that the caller has shown, empty where it has shown none."""
    name = getattr(connection.state, "certificate_name", "")
    headers = connection.headers
    if not name and _settings(connection).trusts_client_headers and headers.get("x-client-verify") == "SUCCESS":
        name = headers.get("x-client-name", "")
    return str(name)
