"""Who calls, and what the caller may do. Every endpoint needs a known caller unless it is marked `public`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends
from starlette.requests import HTTPConnection

from api.api_keys import service as api_keys
from api.database import Database, database_of
from api.logins import service as logins
from api.settings import Settings
from api.users.models import Role, User
from reservoir.errors import ForbiddenError, UnauthenticatedError

COOKIE = "penstock_session"
PREFIX = "/api/v1"

EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])
_public: set[Callable[..., Any]] = set()
_for_agents: set[Callable[..., Any]] = set()


def public(endpoint: EndpointT) -> EndpointT:
    """Let anybody call this endpoint."""
    _public.add(endpoint)
    return endpoint


def for_agents(endpoint: EndpointT) -> EndpointT:
    """Let only node agents call this endpoint, by their certificates."""
    _for_agents.add(endpoint)
    return endpoint


@dataclass(frozen=True)
class Identity:
    """A known caller."""

    id: UUID
    name: str
    role: Role

    @property
    def is_admin(self) -> bool:
        """Whether the caller may do everything."""
        return self.role is Role.ADMIN


async def guard(connection: HTTPConnection) -> None:
    """Let nobody pass who is not known; a dependency of the whole application."""
    endpoint = connection.scope.get("endpoint")
    if endpoint in _public:
        return
    if endpoint in _for_agents:
        connection.state.agent = _agent(connection)
    else:
        connection.state.caller = await _identify(connection)


def settings_of(connection: HTTPConnection) -> Settings:
    """Return the application's settings."""
    settings: Settings = connection.app.state.settings
    return settings


def caller_of(connection: HTTPConnection) -> Identity:
    """Return the caller that `guard` has identified."""
    caller: Identity = connection.state.caller
    return caller


def agent_of(connection: HTTPConnection) -> str:
    """Return the name of the node whose agent calls, as `guard` has found it."""
    agent: str = connection.state.agent
    return agent


Caller = Annotated[Identity, Depends(caller_of)]
Agent = Annotated[str, Depends(agent_of)]
SettingsOf = Annotated[Settings, Depends(settings_of)]


def require_admin(caller: Caller) -> Identity:
    """Return the caller; raises ForbiddenError unless it is an administrator."""
    if not caller.is_admin:
        raise ForbiddenError("only an administrator may do this", cure="ask an administrator")
    return caller


Admin = Annotated[Identity, Depends(require_admin)]


async def _identify(connection: HTTPConnection) -> Identity:
    database: Database = database_of(connection)
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    cookie = connection.cookies.get(COOKIE)
    user: User | None = None
    if scheme.lower() == "bearer" and key:
        async with database.reading() as db:
            user = await api_keys.user_of(db, key.strip())
    elif cookie:
        _check_origin(connection)
        async with database.reading() as db:
            user = await logins.user_of(db, cookie)
    if user is None:
        raise UnauthenticatedError("the caller is not signed in", cure="sign in, or send a valid API key")
    return Identity(user.id, user.name, user.role)


def _check_origin(connection: HTTPConnection) -> None:
    """A browser says which page makes it call; a page of another site may not use the cookie."""
    origin = connection.headers.get("origin")
    if origin and origin.partition("://")[2] != connection.headers.get("host"):
        raise ForbiddenError(f"a page of {origin} may not use this login", cure="use the site's own pages")


def _agent(connection: HTTPConnection) -> str:
    name = getattr(connection.state, "certificate_name", "")
    headers = connection.headers
    if not name and settings_of(connection).trusts_client_headers and headers.get("x-client-verify") == "SUCCESS":
        name = headers.get("x-client-name", "")
    if not name:
        raise UnauthenticatedError(
            "this is for node agents with a certificate of the site", cure="call with the node's certificate"
        )
    return str(name)
