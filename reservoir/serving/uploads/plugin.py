"""A plugin of devpi-server: in an index of the type `site`, what the reservoir publishes goes before uploads.

The server loads it by its entry point. The reservoir's folder comes from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from devpi_server.model import BaseStageCustomizer
from pluggy import HookimplMarker
from pyramid.request import Request
from pyramid.response import Response

from common.errors import InputError, IntegrityError, UnavailableError
from reservoir import settings
from reservoir.serving.uploads.names import Names

hookimpl = HookimplMarker("devpiserver")
Handler = Callable[[Request], Response]
UPLOADS = {"submit", "file_upload", "doc_upload"}


class SiteIndex(BaseStageCustomizer):
    """An index whose uploads are hidden while the reservoir publishes something of the same name."""

    def get_simple_links_filter_iter(self, project: str, links: Any) -> Iterator[bool] | None:
        """Return which links stay: none of this index itself for a name that belongs to the publication alone."""
        if not _names().shut(project):
            return None
        return (not str(link.href).lstrip("/").startswith(f"{self.stage.name}/") for link in links)

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
    """Put the check before the server's own views."""
    pyramid_config.add_tween("reservoir.serving.uploads.plugin.check")


def check(handler: Handler, registry: Any) -> Handler:  # noqa: ARG001 - what Pyramid calls
    """Return a handler that refuses uploads whose name the reservoir publishes, and passes on everything else."""

    def checked(request: Request) -> Response:
        try:
            name = _uploaded(request)
            if name is not None and _names().shut(name):
                return _refusal(
                    403,
                    f"{name} is published by this site's reservoir and no upload may take its place. "
                    f"Hint: choose another name, or ask an administrator for "
                    f"`penstock reservoir uploads allow {name}`",
                )
        except InputError as error:
            return _refusal(400, str(error))
        except (IntegrityError, UnavailableError) as error:
            return _refusal(503, str(error))
        return handler(request)

    return checked


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


def _refusal(status: int, reason: str) -> Response:
    """Return an answer with the reason in its first line, which is what upload tools show, and in its body."""
    line = re.sub(r"[^ -~]+", " ", reason)
    return Response(f"{reason}\n", status=f"{status} {line}", content_type="text/plain", charset="utf-8")


def _names() -> Names:
    return Names(settings.reservoir_root())
