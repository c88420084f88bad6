"""Ways into a session that runs: a shell, a command, files. All wait for one that is on its way to run."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from appliance.cli import config
from appliance.cli.options import ProjectOption
from appliance.cli.session import NameArgument
from appliance.cli.waiting import until_started
from appliance.client.place import Place
from common.errors import InputError

SHELL = ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"]

ContainerOption = Annotated[
    int, typer.Option("--container", metavar="N", min=0, help="Which container of several, from 0.")
]


def bash(name: NameArgument, *, container: ContainerOption = 0, project: ProjectOption = None) -> None:
    """Open a shell in a session, when it runs; its exit code is passed on."""
    from appliance.cli import terminal

    raise typer.Exit(terminal.run(_place(name, project, container), SHELL, tty=terminal.is_there()))


def execute(
    name: NameArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="A program and its arguments.")],
    *,
    tty: Annotated[bool, typer.Option("-t", "--tty", help="With this terminal on it.")] = False,
    container: ContainerOption = 0,
    project: ProjectOption = None,
) -> None:
    """Run a command in a session, when it runs: with this input, outputs and exit code, as in a pipe."""
    from appliance.cli import terminal

    if tty and not terminal.is_there():
        raise InputError("there is no terminal here", where="--tty", hint="leave it out")
    raise typer.Exit(terminal.run(_place(name, project, container), command, tty=tty))


def cp(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A file or folder: PATH here, or NAME:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where to: NAME:PATH, or PATH here.")],
    *,
    container: ContainerOption = 0,
    project: ProjectOption = None,
) -> None:
    """Copy files and folders into a session that runs, or out of it; into TO where that is a folder."""
    from appliance.cli import copies

    (from_, path), (to, where) = _split(source), _split(target)
    if (from_ is None) == (to is None):
        raise InputError(
            "one of both is in a session", where="FROM, TO", hint="write it like `penstock cp desk:/results ./results`"
        )
    if from_:
        copies.fetch(_place(from_, project, container), path, where)
    elif to:
        copies.send(_place(to, project, container), path, where)


def _place(name: str, project: str | None, container: int) -> Place:
    """Return where to go in, once it runs or has ended: the API says what has become of it."""
    remembered = config.load()
    client = remembered.client
    session = client.sessions.get(name, project=remembered.project_or(project))
    session_id = until_started(client, session)["id"]
    return Place(client, session_id, session["project"], container)


def _split(text: str) -> tuple[str | None, str]:
    """Return a session's name with a path in it, or None with a path of this machine."""
    name, found, path = text.partition(":")
    if not found or not name or os.sep in name or name.startswith("."):
        return None, text
    return name, path or "."
