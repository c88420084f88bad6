"""Rules of apps: where one is, and what of a request it gets to see."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.resources.apps import repository
from api.resources.sessions import access
from api.tables.projects import Access
from api.tables.sessions import Service, Session, State
from common.app_addresses import AppName
from common.errors import ForbiddenError, NotFoundError, UnavailableError
from common.sentence import Sentence

KEEP_S = 1.0
"""How long what was found at a path is believed, in seconds: a page of an app asks for many things at once."""
MAX_KEPT = 2000
MAX_DEPTH = 8
"""Most parts of a prefix of an app's own."""
OUR_COOKIES = "penstock_"
OPEN_PATH = "/apps/open"
"""The console's, from which browsers come to apps with names of their own."""

KeyT = TypeVar("KeyT", tuple[str, ...], AppName)

_PLAIN = re.compile(r"[A-Za-z0-9._~/-]{1,255}")


@dataclass(frozen=True)
class ProjectRights:
    """A project, as far as rights on its apps go; it outlives the transaction that read it."""

    id: UUID
    domain: str | None


@dataclass(frozen=True)
class App:
    """A service of a session. `prefix` is the part of the path that leads to it, `stripped` before the app sees it.

    Where an app was found by its own name, which `name` is, it has the whole path. `user_id`, `access` and `project`
    are the session's. `container` (its id), `node` and `upstream` (address and port of its agent) are empty while it
    does not run.
    """

    user_id: UUID | None
    access: Access
    project: ProjectRights
    prefix: str
    stripped: bool
    name: AppName
    container: str = ""
    node: str = ""
    upstream: str = ""


class AppIndex:
    """Finds apps by path and remembers for a moment what was found."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self._kept: dict[tuple[str, ...] | AppName, tuple[float, App | None]] = {}

    async def find(self, db: AsyncSession, uri: str) -> App:
        """Return the app that a request is for by its path; raises NotFoundError."""
        return await self._get(_prefixes(uri), partial(_look_up, db))

    async def find_named(self, db: AsyncSession, name: AppName) -> App:
        """Return the app with a name of its own; raises NotFoundError."""
        return await self._get(name, partial(_look_up_named, db))

    async def _get(self, wanted: KeyT, look_up: Callable[[KeyT], Awaitable[App | None]]) -> App:
        moment = monotonic()
        kept = self._kept.get(wanted)
        if kept is None or moment - kept[0] > KEEP_S:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            kept = self._kept[wanted] = moment, await look_up(wanted)
        if kept[1] is None:
            raise unknown()
        return kept[1]


def check(app: App, caller: Identity) -> None:
    """Let only those pass who may open the app; raises NotFoundError, for nobody else shall learn that there is one."""
    check_rights(app, caller)
    if not app.upstream:
        raise UnavailableError(Sentence("the app does not run yet"), hint=Sentence("try again in a moment"))


def check_rights(app: App, caller: Identity) -> None:
    """Let only those pass who may open the app, whether it runs or not; raises NotFoundError."""
    if not access.may(caller, Action.APP_OPEN, app, app.project):
        raise unknown()


def check_origin(origin: str | None, host: str) -> None:
    """Let no page of another origin act in an app with its user's login; raises ForbiddenError.

    Browsers name the origin with everything but plain navigation, for which any page may have a link.
    """
    if origin is not None and origin != f"https://{host}":
        raise ForbiddenError(f"a page of {origin} may not use this app", where="Origin", hint="open the app itself")


def check_fetched(site: str | None, mode: str | None, destination: str | None) -> None:
    """Let nothing of another origin load parts of an app; raises ForbiddenError.

    Browsers name no origin where a page shows a picture or runs a script of elsewhere, but say so in these headers. The
    apps of a site are of one site to them, so they send the login along. Programs send none of them.
    """
    if site not in (None, "same-origin", "none") and (mode, destination) != ("navigate", "document"):
        raise ForbiddenError(
            "a page of elsewhere may not load this", where="Sec-Fetch-Site", hint="open the app itself"
        )


def check_worker(fetched_as: str | None, uri: str) -> None:
    """Let no service worker of an app with a name of its own see tickets for it; raises ForbiddenError.

    A worker sees what lies below the folder of its script, as the edge lets no app say more. Who hears of a ticket can
    use it elsewhere, and be taken there for whose it is: whoever asks the console for one chooses its state.
    """
    if fetched_as is not None and uri.partition("?")[0].rpartition("/")[0] in ("", "/-"):
        raise ForbiddenError(
            "a service worker may not see the way into its app",
            where="Service-Worker",
            hint="serve its script from a folder of its own, which it is then for",
        )


def inner_uri(app: App, uri: str) -> str:
    """Return what of a request's path and query the app sees."""
    if not app.stripped:
        return uri
    path, mark, query = uri.partition("?")
    depth = app.prefix.count("/")
    return "/" + "/".join(path.split("/")[depth + 1 :]) + mark + query


def lacks_slash(app: App, uri: str) -> bool:
    """Return whether the path is the bare prefix, from which an app's relative links would lead astray."""
    return app.stripped and uri.partition("?")[0].count("/") == app.prefix.count("/")


def app_cookies(header: str) -> str:
    """Return a Cookie header without our own cookies."""
    parts = (part.strip() for part in header.split(";"))
    return "; ".join(part for part in parts if part and not _is_ours(part))


def name_in(uri: str) -> str:
    """Return what of a request's path names the app, its first part."""
    return uri.partition("?")[0].split("/")[1]


def login_path(host: str, uri: str) -> str:
    """Return where in the console a browser signs in to come back to an app."""
    return f"/login?next={quote(f'https://{host}{uri}', safe='', encoding='latin-1', errors='replace')}"


def _is_ours(cookie: str) -> bool:
    name = cookie.partition("=")[0].strip().lower()
    return name.removeprefix("__host-").removeprefix("__secure-").startswith(OUR_COOKIES)


def _prefixes(uri: str) -> tuple[str, ...]:
    """Return what a path may begin with, shortest first: `a`, `a/b` and so on."""
    parts = [unquote(part) for part in uri.partition("?")[0].split("/")[1 : MAX_DEPTH + 1]]
    prefixes = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    # what no service is named can be looked up no more than written into a header
    return tuple(prefix for prefix in prefixes if _PLAIN.fullmatch(prefix) and not prefix.endswith("/"))


async def _look_up(db: AsyncSession, prefixes: tuple[str, ...]) -> App | None:
    if not prefixes:
        return None
    found = await repository.find(db, prefixes[0], prefixes)
    # a path of ours is given to one session only; nobody's own prefix takes it away from it
    found_at = {service.base_path: (service, session) for service, session in found if service.base_path in prefixes}
    for service, session in found:
        if service.path == prefixes[0]:
            return _app(service, session, service.path, stripped=True)
    for prefix in reversed(prefixes):
        if prefix in found_at:
            return _app(*found_at[prefix], prefix, stripped=False)
    return None


async def _look_up_named(db: AsyncSession, name: AppName) -> App | None:
    found = await repository.find_named(db, name.session_id, name.port)
    return _app(*found, "", stripped=False) if found else None


def _app(service: Service, session: Session, prefix: str, *, stripped: bool) -> App:
    container, node, upstream = _upstream(service, session)
    return App(
        user_id=session.user_id,
        access=session.access,
        project=ProjectRights(session.project.id, session.project.domain),
        prefix=f"/{prefix}" if prefix else "",
        stripped=stripped,
        name=AppName(session.id, service.port),
        container=container,
        node=node,
        upstream=upstream,
    )


def _upstream(service: Service, session: Session) -> tuple[str, str, str]:
    """Return id, node and address of the first container that offers the service; empty where none does."""
    if session.state is State.RUNNING:
        for container in session.containers:
            if port := container.ports.get(str(service.port)):
                address = container.node.address
                upstream = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                return session.container_id(container.rank), container.node.name, upstream
    return "", "", ""


def unknown() -> NotFoundError:
    """Return the refusal of what is not there, or is not the caller's."""
    return NotFoundError(
        Sentence("there is no such app"), hint=Sentence("see the session's address with `penstock list`")
    )
