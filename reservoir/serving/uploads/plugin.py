"""A plugin of devpi-server: in an index of the type `site`, what the reservoir publishes goes before uploads, and a
name belongs to its owners.

The server loads it by its entry point. The reservoir's folder comes from the environment.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from devpi_server.model import BaseStageCustomizer
from packaging.version import InvalidVersion, Version
from pluggy import HookimplMarker
from pyramid.request import Request
from pyramid.response import Response

from common.disk_limit import DiskLimit
from common.errors import InputError, IntegrityError, UnavailableError
from reservoir import settings
from reservoir.serving.uploads import holdings
from reservoir.serving.uploads.brake import Brake
from reservoir.serving.uploads.names import Names, normal
from reservoir.serving.uploads.server import ADMIN, INDEX

hookimpl = HookimplMarker("devpiserver")
Handler = Callable[[Request], Response]
UPLOADS = {"file_upload", "doc_upload"}
REGISTER = "submit"
"""What old tools send before a file; the server would keep a name of which nothing ever came."""
RESULT = re.compile(r"^/[^/]+/[^/]+/\+[ef]/")
"""Where anybody could store what they like as results of tests; a mirror cannot be told otherwise."""
FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
ADDRESS_HEADER = "X-Real-IP"
"""Where nginx says who calls."""
MAY_PATH = "/+penstock/may"
"""Answers nginx whether somebody is known, before it takes in what they send."""


class SiteIndex(BaseStageCustomizer):
    """An index whose uploads are hidden while the reservoir publishes something of the same name.

    Where an administrator allows them to accounts, theirs are seen: what others uploaded before stays hidden.
    """

    def get_simple_links_filter_iter(self, project: str, links: Any) -> Iterator[bool] | None:
        """Return which links stay: of this index itself none, or those of the accounts that may have the name."""
        names = _names()
        shut, accounts = names.shut(project), names.shown_of(project)
        if not (shut or accounts):
            return None
        shown = set() if shut else holdings.brought(self.stage, normal(project), {*accounts, ADMIN})
        paths = (str(link.href).partition("#")[0].lstrip("/") for link in links)
        return (path in shown or not path.startswith(f"{self.stage.name}/") for path in paths)

    def get_principals_for_del_entry(self, restrict_modify: Iterable[str] | None = None) -> set[str]:
        """Return who may take an upload away: the administrator, as a version that can go could come back another."""
        return {"root"} if restrict_modify is None else set(restrict_modify)

    get_principals_for_del_project = get_principals_for_del_entry
    get_principals_for_del_verdata = get_principals_for_del_entry


@hookimpl
def devpiserver_get_stage_customizer_classes() -> list[tuple[str, type]]:
    """Make the type of index known."""
    return [("site", SiteIndex)]


@hookimpl
def devpiserver_pyramid_configure(config: Any, pyramid_config: Any) -> None:  # noqa: ARG001 - the hook's names
    """Put the check before the server's own views, and inside its transactions, which changes come to one by one."""
    transactions = "devpi_server.views.tween_keyfs_transaction"
    pyramid_config.add_tween("reservoir.serving.uploads.plugin.check", under=transactions)


def check(handler: Handler, registry: Any) -> Handler:
    """Return a handler that refuses what may not be uploaded by whom, and passes on everything else."""
    brake = Brake()

    def braked(request: Request) -> Response:
        address, tries = request.headers.get(ADDRESS_HEADER, ""), _tries_password(request)
        if tries and (wait_s := brake.wait_s(address)):
            if request.environ["PATH_INFO"] == MAY_PATH:
                # nginx takes 401 and 403 alone for an answer, and makes of this what follows for everything else
                return Response(status=HTTPStatus.FORBIDDEN, headerlist=[("Retry-After", str(math.ceil(wait_s)))])
            return _refusal(429, f"too many wrong passwords from {address or 'here'}; try again in {wait_s:.0f} s")
        answer = checked(request)
        if tries and not request.authenticated_userid:
            brake.note(address)
        return answer

    def checked(request: Request) -> Response:
        if request.environ["PATH_INFO"] == MAY_PATH:
            return Response(status=HTTPStatus.NO_CONTENT if request.authenticated_userid else HTTPStatus.UNAUTHORIZED)
        if never := _never(request):
            return never
        try:
            name = _uploaded(request)
            if name is not None and (refusal := _refused(request, registry, name)):
                return refusal
            _require_plain(request)
            _require_whole(request)
        except InputError as error:
            return _refusal(400, str(error))
        except (IntegrityError, UnavailableError) as error:
            return _refusal(503, str(error))
        return handler(request)

    return braked


def _tries_password(request: Request) -> bool:
    if request.environ["PATH_INFO"] == "/+login":
        return True
    return any(request.headers.get(name) for name in ("Authorization", "X-Devpi-Auth"))


def _never(request: Request) -> Response | None:
    """Return the answer to what nobody may send; None to everything else."""
    if request.method != "POST":
        return None
    if RESULT.search(request.environ["PATH_INFO"]):
        return _refusal(403, "results of tests are not kept here")
    if request.POST.get(":action") == REGISTER:
        return _refusal(410, "a name is registered by its first upload alone. Hint: upload a file of the package")
    return None


def _refused(request: Request, registry: Any, name: str) -> Response | None:
    """Return why a request may not upload a name; None where it may."""
    if reason := _no_room():
        # upload tools take 503 for something that passes by itself, and try for minutes
        return _refusal(507, reason)
    names = _names()
    if names.shut(name):
        return _refusal(
            403,
            f"{name} is published by this site's reservoir and no upload may take its place. "
            f"Hint: choose another name, or ask an administrator for "
            f"`penstock reservoir uploads allow {name} --owner ACCOUNT`",
        )
    account = request.authenticated_userid
    if account in (None, ADMIN):
        # who is nobody is refused by the server
        return None
    stage = registry["xom"].model.getstage(INDEX)
    owners = names.owners(name) or [holdings.first_uploader(stage, normal(name)) or account]
    if account not in owners:
        return _refusal(
            403,
            f"{name} belongs to {', '.join(owners)}. Hint: choose another name, or ask an administrator for "
            f"`penstock reservoir uploads add-owner {name} {account}`",
        )
    quota = settings.uploads_quota()
    if holdings.held(stage, account) + (request.content_length or 0) > quota:
        return _refusal(
            507,
            f"{account} may hold {quota >> 20} MiB of uploads. Hint: ask an administrator to remove old versions, "
            "or to raise `package_index.account_quota_mib` in the site file",
        )
    return None


def _uploaded(request: Request) -> str | None:
    """Return the name of the package that a request brings, by a form or out of another index; or None."""
    if request.method not in ("POST", "PUSH"):
        return None
    if request.POST.get(":action") in UPLOADS:
        return str(request.POST.get("name", ""))
    try:
        # the server reads it so whatever the request calls its content
        body = request.json_body
    except ValueError:
        return None
    return str(body.get("name", "")) if isinstance(body, dict) and "targetindex" in body else None


def _require_plain(request: Request) -> None:
    """Raise InputError where the version of a file that came is none, or its name is not what tools call packages."""
    form = request.POST if request.method == "POST" else {}
    filename = getattr(form.get("content"), "filename", None)
    if filename is None:
        # the server says itself what is lacking
        return
    if not FILENAME.fullmatch(filename):
        raise InputError(
            f"{filename!a} is not the name of a package's file",
            where="content",
            hint="use letters, digits, and - _ . + ! between them",
        )
    try:
        Version(form.get("version", ""))
    except InvalidVersion as error:
        # documents may be without
        if form.get("version") or form.get(":action") == "file_upload":
            raise InputError(
                f"{form.get('version', '')!a} is not a version",
                where="version",
                hint="write it as PEP 440 says, such as 1.0 or 2.1rc1",
            ) from error


def _require_whole(request: Request) -> None:
    """Raise InputError where a file that came is not the one that the form says, as when its end is lacking."""
    form = request.POST if request.method == "POST" else {}
    said, content = form.get("sha256_digest"), getattr(form.get("content"), "file", None)
    if said and content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
        content.seek(0)
        if found != said.lower():
            raise InputError(
                f"the file that came has the sha256 {found}, not {said}", where="content", hint="upload it again"
            )


def _refusal(status: int, reason: str) -> Response:
    """Return an answer with the reason in its first line, which is what upload tools show, and in its body."""
    line = re.sub(r"[^ -~]+", " ", reason)
    return Response(f"{reason}\n", status=f"{status} {line}", content_type="text/plain", charset="utf-8")


def _no_room() -> str:
    """Return why nothing can be uploaded now; empty where there is room."""
    # the server works in the folder of its own data
    limit = DiskLimit([settings.reservoir_root(), Path.cwd()], settings.disk_stop_percent())
    try:
        limit.refuse_where_full("an upload")
    except UnavailableError as error:
        return str(error)
    return ""


def _names() -> Names:
    return Names(settings.reservoir_root())
