"""Projects: who shares which quota of GPUs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from appliance.cli import config, output
from appliance.cli.output import Format, FormatOption
from appliance.client import Project, segment
from appliance.gpu.units import format_gpus, parse_gpus
from reservoir.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Projects: list, show, create, delete, set the current one.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the project.")]
QuotaOption = Annotated[str | None, typer.Option("--gpus", "-g", metavar="N", help="Quota in GPUs, such as 1 or 2.5.")]
MembersOption = Annotated[
    list[str] | None, typer.Option("--member", metavar="USER", help="A member; repeat for more. Replaces the list.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="What the project is for.")]


@app.command("set")
def set_current(name: NameArgument) -> None:
    """Make a project the current one, which later commands use."""
    remembered = config.load()
    project: Project = remembered.client.get(_path(name))
    config.save(replace(remembered, project=project["name"]))
    print(f"Current project: {project['name']}")


@app.command("list")
def list_projects(form: FormatOption = Format.TABLE) -> None:
    """List your projects; the current one is marked with a star."""
    remembered = config.load()
    projects: list[Project] = remembered.client.get("/projects")
    if form is Format.JSON:
        output.print_json(projects)
        return
    output.print_table(
        ("", "NAME", "GPUs", "IN USE", "MEMBERS", "CREATED"),
        [
            (
                "*" if project["name"] == remembered.project else "",
                project["name"],
                format_gpus(project["quota_milli"]),
                format_gpus(project["used_milli"]),
                ", ".join(project["members"]) or "-",
                output.age(project["created_at"]),
            )
            for project in projects
        ],
    )


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one project."""
    project: Project = config.load().client.get(_path(name))
    if form is Format.JSON:
        output.print_json(project)
    else:
        _show(project)


@app.command("create")
def create(
    name: NameArgument,
    *,
    gpus: Annotated[str, typer.Option("--gpus", "-g", metavar="N", help="Quota in GPUs, such as 1 or 2.5.")],
    members: MembersOption = None,
    description: DescriptionOption = None,
    until: Annotated[
        str, typer.Option("--until", metavar="DATE|never", help="Last day or moment of its period.")
    ] = "never",
) -> None:
    """Create a project (administrators)."""
    body = {"name": name, "period": {"ends_at": _end(until)}, **_changes(gpus, members, description)}
    _show(config.load().client.call("POST", "/projects", body))


@app.command("update")
def update(
    name: NameArgument,
    *,
    gpus: QuotaOption = None,
    members: MembersOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change quota, members or description (administrators); what is left out stays."""
    _show(config.load().client.call("PATCH", _path(name), _changes(gpus, members, description)))


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a project that has no live session (administrators)."""
    remembered = config.load()
    remembered.client.call("DELETE", _path(name))
    if remembered.project == name:
        config.save(replace(remembered, project=""))
    print(f"Deleted project {name}.")


def _changes(gpus: str | None, members: list[str] | None, description: str | None) -> dict[str, Any]:
    given = {
        "quota_milli": None if gpus is None else parse_gpus(gpus, "--gpus"),
        "members": members,
        "description": description,
    }
    return {key: value for key, value in given.items() if value is not None}


def _end(until: str) -> str | None:
    """Return the moment at which a period ends, None for never; a day counts to its end, in the user's zone."""
    if until == "never":
        return None
    try:
        moment = datetime.fromisoformat(until)
    except ValueError:
        raise InputError(
            f"{until!r} is no date", where="--until", cure="write 2027-12-31, 2027-12-31T18:00, or never"
        ) from None
    return (moment if "T" in until or " " in until else moment + timedelta(days=1)).astimezone().isoformat()


def _show(project: Project) -> None:
    output.print_fields(
        (
            ("Name", project["name"]),
            ("Description", project["description"]),
            ("GPUs", format_gpus(project["quota_milli"])),
            ("In use", format_gpus(project["used_milli"])),
            ("Members", ", ".join(project["members"])),
            ("Created", output.moment(project["created_at"])),
        )
    )


def _path(name: str) -> str:
    return f"/projects/{segment(name)}"
