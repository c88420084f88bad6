"""Pages: templates filled for a caller, with the headers that a page of ours has, and parts that stay up to date."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.console import formats, texts
from api.endpoints.access import CSRF_HEADER, SEEN_HEADER, cookie_name, csrf_token, shown_cookie
from api.endpoints.docs import version_of
from api.lists.stamps import Stamps, Tables
from api.settings import Settings

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    extensions=["jinja2.ext.i18n"],
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.install_gettext_callables(texts.gettext, texts.ngettext, newstyle=True)  # type: ignore[attr-defined]
_environment.filters |= formats.FILTERS


def headers(settings: Settings) -> dict[str, str]:
    """Return the headers of every page: nothing inline, nothing from elsewhere, shown in no frame, kept by nobody."""
    origin = f" {settings.apps.policy}" if settings.apps.policy else ""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        f"form-action 'self'{origin}; frame-ancestors 'none'; base-uri 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
        "Vary": "Accept-Language",
    }


def page(request: Request, template: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Return a page."""
    return _answer(request, _filled(request, template, values), status)


async def live(
    request: Request,
    template: str,
    part: str,
    values: Mapping[str, Any],
    *,
    name: str = "live",
    every_s: int = 3,
    stamp: str = "",
    shared: bool = False,
) -> Response:
    """Return a page with a part that asks for itself again and again, or where that asks, the part alone.

    The answer is a 204 where the browser shows the part as it is. A `stamp` lets the next one be answered before
    anything is read for it (`unchanged`). A part that is `shared` is answered to all who ask at its stamp, so that has
    to tell of all that it is made of; its template knows nothing of the caller.
    """
    # a site may have many rows, and whoever calls meanwhile is answered
    content = await asyncio.to_thread(_filled, request, part, values, anonymous=shared)
    version = f"{stamp}{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if request.headers.get(SEEN_HEADER) == version:
        return _as_it_is(request)
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    about = {"name": name, "version": version, "address": address, "every_s": every_s}
    about |= {"content": Markup(content)}  # noqa: S704 -- ours
    shown = _filled(request, "live.html", about, anonymous=shared)
    if shared and stamp:
        _stamps(request).keep(stamp, shown)
    if is_part(request):
        return _answer(request, shown)
    live = Markup(shown)  # noqa: S704 -- a template's, which has escaped all that it was given
    return page(request, template, {**values, "live": live})


async def stamp(request: Request, db: AsyncSession, tables: Tables, *more: object) -> str:
    """Return the stamp of what a part shows: it is another one where these tables were written, or `more` is."""
    return await _stamps(request).stamp(db, tables, *more)


def unchanged(request: Request, stamp: str) -> Response | None:
    """Return the answer to a page that is open where nothing has to be read for it, None otherwise.

    Its part is as it was at this stamp, or was made at it for somebody else. Whoever goes to a page sees what is
    written by then.
    """
    seen = request.headers.get(SEEN_HEADER, "")
    if not (stamp and seen):
        return None
    if seen.startswith(stamp):
        return _as_it_is(request)
    made = _stamps(request).kept(stamp)
    return None if made is None else _answer(request, made)


def anew(request: Request) -> Response:
    """Return the answer to a page that has to be loaded again."""
    return Response(status_code=204, headers={**headers(_settings(request)), "HX-Refresh": "true"})


def _answer(request: Request, text: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(text, status, headers(_settings(request)))


def _as_it_is(request: Request) -> Response:
    return Response(status_code=204, headers=headers(_settings(request)))


def is_part(request: Request) -> bool:
    """Return whether a script of a page asks, and not a browser that goes to one."""
    return "hx-request" in request.headers


def is_of_former_login(request: Request) -> bool:
    """Return whether a page asks that was loaded by another login than the one that the browser has now."""
    token = request.headers.get(CSRF_HEADER)
    return is_part(request) and token not in (None, csrf_token(shown_cookie(request)))


def caller_of(request: Request) -> Identity | None:
    """Return the caller, None where nobody is known."""
    known = getattr(request.state, "known", None)
    return known.identity if known else None


def _filled(request: Request, template: str, values: Mapping[str, Any], *, anonymous: bool = False) -> str:
    texts.current.set(texts.language_of(request))
    about = {} if anonymous else _about(request)
    return _environment.get_template(template).render(about | dict(values))


def _about(request: Request) -> dict[str, Any]:
    """Return what templates know of the request and its caller."""
    known, caller = getattr(request.state, "known", None), caller_of(request)
    cookie = request.cookies.get(cookie_name(request), "")
    return {
        "asset": _asset,
        "caller": caller,
        "token": csrf_token(cookie) if caller and cookie else "",
        "path": request.url.path,
        "language": texts.current.get().value,
        "languages": texts.NAMES,
        "chosen": known.language if known else None,
        "notices": getattr(request.state, "notices", ()) if caller else (),
        "may": lambda action: caller is not None and caller.reach(Action[action]).anything,
    }


def _asset(name: str) -> str:
    """Return the address of a file of ours: another one whenever the file is."""
    return f"/static/{name}?v={version_of(name)}"


def _stamps(request: Request) -> Stamps:
    stamps: Stamps = request.app.state.stamps
    return stamps


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings
