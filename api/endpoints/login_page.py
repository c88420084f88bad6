"""The page on which a browser signs in, and from which it goes on to where it was sent from."""

from __future__ import annotations

import re
from html import escape
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from api.endpoints.access import SettingsOf, public
from api.endpoints.docs import HEADERS, STATIC
from api.endpoints.routes import Router

START = "/"
"""Where a browser goes that was not sent from anywhere."""

# What browsers and servers read alike: no spaces, backslashes or control characters.
_PLACE = re.compile(r"(?:https://(?P<authority>[^/?#]+))?(?:/(?![/\\])[^\\]*)?", re.ASCII)

router = Router()


@router.get("/login", include_in_schema=False, response_class=HTMLResponse)
@public
async def show_login(
    request: Request, settings: SettingsOf, wanted: Annotated[str, Query(alias="next")] = ""
) -> HTMLResponse:
    """Show the page; `next` is where the browser goes afterwards, if that is the console's or the apps' origin."""
    place = destination(wanted, request.headers.get("host", ""), settings.apps_url)
    page = (STATIC / "login.html").read_text().replace("{destination}", escape(place))
    return HTMLResponse(page, headers={**HEADERS, "Cache-Control": "no-store"})


def destination(wanted: str, host: str, apps_url: str) -> str:
    """Return `wanted` where it leads to the origin of `host`, or to the apps' on it; else the start page."""
    found = _PLACE.fullmatch(wanted)
    if not wanted or not found or not wanted.isascii() or not wanted.isprintable() or " " in wanted:
        return START
    return wanted if found["authority"] in {None, *_authorities(host, apps_url)} else START


def _authorities(host: str, apps_url: str) -> set[str]:
    """Return names and ports of our origins: apps are on another port of each name by which the site is known."""
    if not apps_url:
        return {host}
    apps = urlsplit(apps_url)
    name = re.sub(r":\d+$", "", host)
    return {host, apps.netloc, f"{name}:{apps.port}" if apps.port else name}
