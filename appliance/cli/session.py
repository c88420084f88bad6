"""Sessions: submit, list, show, log, shell, delete."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.output import Format, FormatOption, ProjectOption
from appliance.client import Client, Query, Session, Settings, segment
from appliance.gpu.units import MILLI, format_gpus, parse_gpus
from reservoir.errors import InputError, PenstockError, Problem

STATES = {"PREPARING": "ContainerCreating"}
HEAD = ("NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the session.")]


def submit(
    name: NameArgument,
    *,
    image: Annotated[str, typer.Option("-i", "--image", help="Image, such as python or python:3.11.")],
    gpus: Annotated[str | None, typer.Option("-g", "--gpus", metavar="N", help="GPUs, such as 0.5, 1 or 2.5.")] = None,
    fgpu: Annotated[str | None, typer.Option("--fgpu", metavar="N", help="The same in units of fGPU.")] = None,
    project: ProjectOption = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="It runs until you delete it.")] = False,
    command: Annotated[str | None, typer.Option("--command", help="Command, instead of the image's own.")] = None,
    args: Annotated[list[str] | None, typer.Option("--args", help="Argument of the command; may be repeated.")] = None,
) -> None:
    """Submit a session: a container with a share of GPUs."""
    remembered = config.load()
    client = remembered.client
    session: Session = client.call(
        "POST",
        "/sessions",
        {
            "name": name,
            "project": remembered.project_or(project),
            "image": image,
            "gpu_milli": _share(client, gpus, fgpu),
            "interactive": interactive,
            "command": _words(command),
            "args": args or [],
        },
    )
    print(
        f"{session['name']}: {status(session)}, {format_gpus(session['gpu_milli'])} GPU, project {session['project']}"
    )


def list_sessions(
    *,
    project: ProjectOption = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="With the sessions that have ended.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the sessions of the current project, or of all your projects where none is set."""
    remembered = config.load()
    query = {"project": project or remembered.project or None, "all": all_}
    sessions: list[Session] = remembered.client.get("/sessions", query)
    if form is Format.JSON:
        output.print_json(sessions)
        return
    output.print_table(HEAD, [_row(session) for session in sessions])
    for session in sessions:
        if session["reason"] and session["state"] == "PENDING":
            print(f"{session['name']} waits: {session['reason']}")


def get(name: NameArgument, *, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show one session, with the reason when it waits or failed."""
    remembered = config.load()
    session: Session = remembered.client.get(_path(name), {"project": remembered.project_or(project)})
    if form is Format.JSON:
        output.print_json(session)
        return
    exit_code = session["exit_code"]
    output.print_fields(
        (
            ("Name", session["name"]),
            ("Status", status(session)),
            ("Reason", session["reason"]),
            ("Project", session["project"]),
            ("User", session["user"]),
            ("Type", session["kind"]),
            ("Image", session["image"]),
            ("Command", shlex.join([*(session["command"] or []), *session["args"]])),
            ("GPUs", format_gpus(session["gpu_milli"])),
            ("Node", session["node"] or ""),
            ("On", ", ".join(f"{format_gpus(gpu['milli'])} of {gpu['uuid']}" for gpu in session["gpus"])),
            ("Created", output.moment(session["created_at"])),
            ("Started", output.moment(session["started_at"])),
            ("Finished", output.moment(session["finished_at"])),
            ("Exit code", "" if exit_code is None else str(exit_code)),
        )
    )


def logs(
    name: NameArgument,
    *,
    project: ProjectOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the session ends.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=0, help="Only the last N lines.")] = None,
) -> None:
    """Show a session's log; it can be read after the session has ended."""
    remembered = config.load()
    query: Query = {"project": remembered.project_or(project), "follow": follow, "tail": tail}
    for chunk in remembered.client.stream(_path(name, "/logs"), query):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def bash(name: NameArgument, *, project: ProjectOption = None) -> None:
    """Open a shell in a running session; its exit code is passed on."""
    from appliance.cli import terminal

    remembered = config.load()
    code = terminal.run(remembered.client, _path(name, "/exec"), remembered.project_or(project))
    raise typer.Exit(code)


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the sessions.")],
    *,
    project: ProjectOption = None,
) -> None:
    """Delete sessions: end those that live, and take ended ones off the list."""
    remembered = config.load()
    query = {"project": remembered.project_or(project)}
    refused: list[PenstockError] = []
    for name in names:
        try:
            session: Session = remembered.client.call("DELETE", _path(name), query=query)
        except PenstockError as error:
            refused.append(error)
        else:
            print(f"{session['name']}: {status(session)}")
    if refused:
        raise type(refused[0]).of([problem for error in refused for problem in error.problems])


def status(session: Session) -> str:
    """Return a session's state as people know it: `Pending`, `ContainerCreating`, `Running` ..."""
    return STATES.get(session["state"], session["state"].capitalize())


def _row(session: Session) -> tuple[str, ...]:
    return (
        session["name"],
        status(session),
        output.age(session["created_at"]),
        session["node"] or "-",
        session["image"],
        session["kind"].capitalize(),
        session["project"],
        session["user"],
        format_gpus(session["gpu_milli"]),
    )


def _path(name: str, rest: str = "") -> str:
    return f"/sessions/{segment(name)}{rest}"


def _share(client: Client, gpus: str | None, fgpu: str | None) -> int:
    """Return the milli-GPU that `-g` or `--fgpu` asks for."""
    if (gpus is None) == (fgpu is None):
        raise InputError(
            "the share is given twice" if gpus else "no share of GPUs is given",
            where="-g",
            cure="write `-g 0.5`, or `--fgpu 1` to count in fGPU",
        )
    if fgpu is None:
        return parse_gpus(gpus or "", "-g")
    settings: Settings = client.get("/settings")
    milli, rest = divmod(parse_gpus(fgpu, "--fgpu") * settings["fgpu_milli"], MILLI)
    if rest:
        step = format_gpus(settings["step_milli"])
        raise InputError(
            f"{fgpu} fGPU is not a whole number of milli-GPU",
            where="--fgpu",
            cure=f"ask for a multiple of {step} GPU; one fGPU is {format_gpus(settings['fgpu_milli'])} GPU here",
        )
    return milli


def _words(command: str | None) -> Sequence[str] | None:
    if command is None:
        return None
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InputError.of(
            [Problem("--command", f"{command!r} cannot be split into words: {error}", "close the quotes")]
        ) from error
