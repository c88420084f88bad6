"""Volumes: storage of projects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.options import ProjectOption, complete_projects, complete_volumes, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Volume
from appliance.client.words import VolumeState

app = group("Volumes: storage of projects. List, show, create, delete, hand over to another project.")

LONGEST_NAME = 20
"""Characters of the longest name; ids are longer."""
HEAD = ("NAME", "PROJECT", "STATE", "SIZE", "IN USE BY", "AGE", "ID")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME|ID", help="Name or id of the volume.", autocompletion=complete_volumes)
]


@app.command("list")
def list_volumes(
    *,
    project: ProjectOption = None,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Of all projects, and those that were kept of none.")
    ] = False,
    state: Annotated[VolumeState | None, typer.Option("--state", help="Only those in that state.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the volumes of the current project, or of all your projects where none is set."""
    remembered = config.load()
    chosen = None if all_ else project or remembered.project or None
    output.show(remembered.client.volumes.list(chosen, state=[state] if state else None), form, _table)


@app.command("get")
def get(name: NameArgument, *, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show one volume."""
    remembered = config.load()
    volume = remembered.client.volumes.get(name, project=_project(remembered, name, project))
    output.show(volume, form, _fields)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the volume.")],
    *,
    project: ProjectOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a volume (managers of the project); a session that names one makes it, too."""
    remembered = config.load()
    volume = remembered.client.volumes.create(name=name, project=remembered.project_or(project))
    output.show(volume, form, _fields)


@app.command("delete")
def delete(name: NameArgument, *, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Delete a volume that no session uses, with its files (managers of the project)."""
    remembered = config.load()
    volume = remembered.client.volumes.delete(name, project=_project(remembered, name, project))
    output.show(volume, form, lambda _: print(f"{volume['name']}: its files are being deleted"))


@app.command("hand-over")
def hand_over(
    name: NameArgument,
    to: Annotated[
        str, typer.Argument(metavar="PROJECT", help="The project that gets it.", autocompletion=complete_projects)
    ],
    *,
    project: ProjectOption = None,
    rename: Annotated[str | None, typer.Option("--as", metavar="NAME", help="What it is called there.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Give a volume that no session uses to another project (administrators); one that was kept goes by its id."""
    remembered = config.load()
    of = _project(remembered, name, project)
    volume = remembered.client.volumes.hand_over(name, of=of, project=to, **given(name=rename))
    output.show(volume, form, lambda _: print(f"{volume['name']}: of project {volume['project']}"))


def _project(remembered: config.Config, name: str, project: str | None) -> str | None:
    """Return the project of a volume that is named; an id needs none."""
    return project if len(name) > LONGEST_NAME else remembered.project_or(project)


def _table(volumes: Sequence[Volume]) -> None:
    output.print_table(HEAD, [_row(volume) for volume in volumes], below=("ID",))
    for volume in volumes:
        if volume["reason"]:
            print(f"{volume['name']} is still there: {volume['reason']}")


def _row(volume: Volume) -> tuple[str, ...]:
    return (
        volume["name"],
        volume["project"] or f"(was {volume['former_project']})",
        volume["state"],
        _size(volume),
        str(volume["sessions"] or "-"),
        output.age(volume["created_at"]),
        volume["id"],
    )


def _fields(volume: Volume) -> None:
    output.print_fields(
        (
            ("Name", volume["name"]),
            ("Id", volume["id"]),
            ("Project", volume["project"] or ""),
            ("Was of", volume["former_project"]),
            ("Domain", volume["domain"] or ""),
            ("State", volume["state"]),
            ("Reason", volume["reason"]),
            ("Storage", volume["storage"]),
            ("Folder", volume["folder"]),
            ("Size", _size(volume)),
            ("Measured", output.moment(volume["measured_at"])),
            ("In use by", f"{volume['sessions']} live sessions" if volume["sessions"] else ""),
            ("Created by", volume["created_by"]),
            ("Created", output.moment(volume["created_at"])),
        )
    )


def _size(volume: Volume) -> str:
    """Return how much is in it, of how much may be where the storage has a limit; nothing where nobody can tell."""
    if volume["used_mib"] is None:
        return "-"
    limit = "" if volume["limit_mib"] is None else f" of {_amount(volume['limit_mib'])}"
    return _amount(volume["used_mib"]) + limit


def _amount(mib: int) -> str:
    return f"{mib}M" if mib < 1024 else output.gib(mib)
