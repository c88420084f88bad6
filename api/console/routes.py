"""Routes of the console: a browser that goes to a page is answered by a page, whatever comes of it.

Scripts of our pages hear of what was refused as programs do: as problem details.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from api.console import pages, texts
from api.endpoints.access import note_page
from api.endpoints.routes import Route
from common.errors import ForbiddenError, UnauthenticatedError

LOGIN, PASSWORD = "/login", "/password"
SEE_OTHER = 303

Handler = Callable[[Request, Exception], Awaitable[Response]]


class PageRoute(Route):
    """Says by a page what is wrong, or sends the browser where it has to go first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle = super().get_route_handler()
        if "GET" in (self.methods or ()):
            note_page(self.endpoint)

        async def answer(request: Request) -> Response:
            request.state.say = partial(_said, request)
            # what is raised is answered outside of what the endpoint depends on: its transaction has to see it
            request.state.is_page = goes_to_page(request)
            if request.state.is_page:
                request.state.notices = await request.app.state.notice_board.shown()
            response = await handle(request)
            # what stands around the part was for another login, and its forms have that one's token
            is_old = request.method == "GET" and pages.is_of_former_login(request)
            return pages.anew(request) if is_old else response

        return answer


class Listeners:
    """ASGI middleware that lets scripts of pages hear in the reader's language what the API refuses them.

    Programs, which send no Origin, hear it in English.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on with how to say what is refused."""
        if scope["type"] in ("http", "websocket") and "origin" in (connection := HTTPConnection(scope)).headers:
            connection.state.say = partial(_said, connection)
        await self._app(scope, receive, send)


async def speak(request: Request) -> None:
    """Let what is said while a request is answered be said in the reader's language."""
    texts.current.set(texts.language_of(request))


async def refresh(response: Response) -> None:
    """Let the parts of the page that stay up to date ask at once."""
    response.headers["HX-Trigger"] = "refresh"


REFRESH = Depends(refresh)
"""Belongs to routes that change what their page shows."""


def back_to(address: str) -> Any:
    """Return what belongs to routes that change a thing on its own page: browsers go back to where all are."""

    async def go(response: Response) -> None:
        response.headers["HX-Redirect"] = address

    return Depends(go)


Router = partial(APIRouter, route_class=PageRoute, include_in_schema=False, dependencies=[Depends(speak)])
"""Makes the routers of the console."""


def goes_to_page(request: Request) -> bool:
    """Return whether a browser goes to a page with this request."""
    return "text/html" in request.headers.get("accept", "") and not pages.is_part(request)


def answer_by_pages(app: FastAPI) -> None:
    """Let a browser that goes to a page, or to what is not there, see by a page what is refused."""
    handlers: dict[Any, Handler] = dict(app.exception_handlers)
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, partial(_answered, handler))


async def _answered(handler: Handler, request: Request, error: Exception) -> Response:
    is_page = getattr(request.state, "is_page", False)
    if is_page and (way := _elsewhere(request, error)):
        return way
    is_nothing = isinstance(error, HTTPException) and isinstance(request, Request)
    shows_page = is_page or (is_nothing and goes_to_page(request) and not _is_api(request))
    if shows_page:
        request.state.say = partial(_said, request)
    answer = await handler(request, error)
    if isinstance(error, ForbiddenError) and isinstance(request, Request) and pages.is_of_former_login(request):
        # another tab has signed in since: the page goes on as that one, and keeps what is filled in
        answer.headers["HX-Refresh"] = "true"
    return _page_of(request, answer) if shows_page else answer


def _said(connection: HTTPConnection, text: str) -> str:
    """Return what is wrong in the reader's language."""
    texts.current.set(texts.language_of(connection))
    return texts.said(text)


def _elsewhere(request: Request, error: Exception) -> Response | None:
    """Return the way to where somebody has to sign in or choose a password first."""
    if isinstance(error, UnauthenticatedError):
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{LOGIN}?{urlencode({'next': wanted})}" if wanted != "/" else LOGIN, SEE_OTHER)
    known = getattr(request.state, "known", None)
    if known and known.must_change_password and request.url.path != PASSWORD:
        return RedirectResponse(PASSWORD, SEE_OTHER)
    return None


def _page_of(request: Request, answer: Response) -> Response:
    told = json.loads(bytes(answer.body))
    page = pages.page(request, "refusal.html", {"told": told}, status=answer.status_code)
    kept = {name: value for name, value in answer.headers.items() if name not in page.headers}
    page.headers.update(kept)
    return page


def _is_api(request: Request) -> bool:
    return request.url.path.startswith(("/api/", "/agent/", "/static/"))
