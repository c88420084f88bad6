"""Common parts of the groups of commands: how they are made, options, and the names that a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from appliance.cli import config
from appliance.client import Client
from common.errors import PenstockError
from common.places import from_dotted

HELP = {"help_option_names": ["-h", "--help"]}
OPTIONS = {
    "gpu_milli": "-g",
    "cpu_milli": "--cpu",
    "memory_mib": "--memory",
    "shm_mib": "--shm",
    "disk_mib": "--disk",
    "name": "NAME",
}
"""Options of what sessions and presets ask for, by the field of the request."""
COMPLETE_S = 1.0
"""How long a shell's completion waits for the API, in seconds."""


def group(summary: str) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(
        help=summary, no_args_is_help=True, add_completion=False, rich_markup_mode=None, context_settings=HELP
    )


def given(**values: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def told_by_options(**options: str) -> Iterator[None]:
    """Call the fields of a request by the options that say them, in what the API refuses."""
    named = OPTIONS | options
    try:
        yield
    except PenstockError as error:
        told = [replace(one, where=named.get(_field(one.where), one.where)) for one in error.problems]
        raise type(error).of(told) from error


def _field(where: str) -> str:
    """Return the field of a request that a place lies in."""
    return str(next(iter(from_dotted(where)), ""))


def complete_sessions(ctx: typer.Context) -> Sequence[str]:
    """Return the names of the project's sessions."""
    project = ctx.params.get("project")
    return _names(lambda client, current: [one["name"] for one in client.sessions.list(project or current or None)])


def complete_projects() -> Sequence[str]:
    """Return the names of the projects."""
    return _names(lambda client, _: [project["name"] for project in client.projects.list()])


def complete_volumes(ctx: typer.Context) -> Sequence[str]:
    """Return the names of the project's volumes."""
    project = ctx.params.get("project")
    return _names(lambda client, current: [one["name"] for one in client.volumes.list(project or current or None)])


def complete_images() -> Sequence[str]:
    """Return the images, each a name with a tag."""
    return _names(lambda client, _: [f"{image['name']}:{image['tag']}" for image in client.images.list()])


def complete_nodes() -> Sequence[str]:
    """Return the names of the nodes."""
    return _names(lambda client, _: [node["name"] for node in client.nodes.list()])


def complete_groups() -> Sequence[str]:
    """Return the names of the resource groups."""
    return _names(lambda client, _: [group["name"] for group in client.groups.list()])


def complete_users() -> Sequence[str]:
    """Return the names of the users."""
    return _names(lambda client, _: [user["name"] for user in client.users.list()])


def complete_presets() -> Sequence[str]:
    """Return the names of the presets."""
    return _names(lambda client, _: [preset["name"] for preset in client.presets.list()])


def complete_sandboxes() -> Sequence[str]:
    """Return the names of the sandboxes."""
    return _names(lambda client, _: [sandbox["name"] for sandbox in client.sandboxes.list()])


def _names(ask: Callable[[Client, str], list[str]]) -> Sequence[str]:
    """Return what the API answers in a moment; a completion that knows nothing says nothing."""
    try:
        remembered = config.load()
        return ask(remembered.connect(COMPLETE_S), remembered.project)
    except PenstockError:
        return []


ProjectOption = Annotated[
    str | None,
    typer.Option("-p", "--project", help="Project, instead of the current one.", autocompletion=complete_projects),
]
