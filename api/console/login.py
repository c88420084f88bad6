"""The pages on which people sign in and choose a first password, and from which they go on to where they came from."""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Annotated
from urllib.parse import unquote, urlsplit

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse

from api.auth.policy import Action
from api.console import pages
from api.console.routes import LOGIN, PASSWORD, Router
from api.endpoints import logins
from api.endpoints.access import KnownCallerOf, SettingsOf, action, public
from api.endpoints.transactions import Transaction
from common.app_addresses import AppAddresses

START = "/"
"""Where a browser goes that was not sent from anywhere."""

# What browsers and servers read alike: no spaces, backslashes or control characters.
_PLACE = re.compile(r"(?:https://(?P<authority>[^/?#]+))?(?:/(?![/\\])[^\\]*)?", re.ASCII)
_LOGOUT = "/logout"

router = Router()


@router.get(LOGIN)
@public
async def show_login(
    request: Request, settings: SettingsOf, wanted: Annotated[str, Query(alias="next")] = ""
) -> HTMLResponse:
    """Show the page; `next` is where the browser goes afterwards, if that is the console's or the apps' origin."""
    place = destination(wanted, request.headers.get("host", ""), settings.apps)
    return pages.page(request, "login.html", {"destination": place, "signed_in": False})


@router.get(PASSWORD)
@action(Action.ACCOUNT_READ)
async def show_password(request: Request) -> HTMLResponse:
    """Show where somebody replaces the password that an administrator has made."""
    return pages.page(request, "login.html", {"destination": START, "signed_in": True})


@router.post(_LOGOUT, status_code=204)
@action(Action.ACCOUNT_LOGOUT)
async def sign_out(known: KnownCallerOf, request: Request, response: Response, db: Transaction) -> None:
    """Sign out, and show the page to sign in."""
    await logins.logout(known, request, response, db)
    response.headers["HX-Redirect"] = LOGIN


def destination(wanted: str, host: str, apps: AppAddresses) -> str:
    """Return `wanted` where it leads to the origin of `host`, or to that of apps; else the start page."""
    found = _PLACE.fullmatch(wanted)
    if not wanted or not found or not wanted.isascii() or not wanted.isprintable() or " " in wanted:
        return START
    authority = found["authority"]
    if authority in (None, host):
        # whoever has signed in would be asked to do so again, or be told that this is no page
        path = re.split("[?#]", wanted.removeprefix(f"https://{host}"))[0]
        return START if normpath(unquote(path)) in (LOGIN, _LOGOUT) else wanted
    return wanted if authority in _authorities(host, apps.url) or apps.is_own_host(authority) else START


def _authorities(host: str, apps_url: str) -> set[str]:
    """Return names and ports of our origins: apps are on another port of each name by which the site is known."""
    if not apps_url:
        return {host}
    apps = urlsplit(apps_url)
    name = re.sub(r":\d+$", "", host)
    return {host, apps.netloc, f"{name}:{apps.port}" if apps.port else name}
