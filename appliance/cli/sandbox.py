"""Sandboxes: what programs of sessions may not ask of the kernel."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from appliance.cli import config, output
from appliance.cli.options import complete_sandboxes, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Sandbox
from common.sandbox_rules import format_rule, parse_rule

app = group("Sandboxes: what programs of sessions may not ask of the kernel.")

NOBODY = "none"

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the sandbox.", autocompletion=complete_sandboxes)
]
DenyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--deny",
        metavar="CALLS[(TESTS)][:ERRNO|kill]",
        help="System calls to deny; again for more. Tests: ARGUMENT=VALUE|VALUE or ARGUMENT&BITS, by commas.",
    ),
]
ProjectsOption = Annotated[
    list[str] | None, typer.Option("--project", metavar="NAME", help="A project that it is for; again for more.")
]
ImagesOption = Annotated[
    list[str] | None, typer.Option("--image", metavar="NAME:TAG", help="An image that it is for; again for more.")
]
SiteOption = Annotated[
    bool | None, typer.Option("--site-wide/--not-site-wide", help="For every session that no other one is for.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="What the sandbox is for.")]


@app.command("list")
def list_sandboxes(form: FormatOption = Format.TABLE) -> None:
    """List the sandboxes by name."""
    output.show(config.load().client.sandboxes.list(), form, _table)


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one sandbox."""
    output.show(config.load().client.sandboxes.get(name), form, _fields)


@app.command("create")
def create(
    name: NameArgument,
    *,
    deny: DenyOption = None,
    project: ProjectsOption = None,
    image: ImagesOption = None,
    site_wide: SiteOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a sandbox (administrators); without --deny it denies nothing and spares its sessions the site's one."""
    values = _values(deny, project, image, site_wide, description)
    output.show(config.load().client.sandboxes.create(name=name, **values), form, _fields)


@app.command("update")
def update(
    name: NameArgument,
    *,
    deny: DenyOption = None,
    project: ProjectsOption = None,
    image: ImagesOption = None,
    site_wide: SiteOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a sandbox (administrators); what is given replaces what is, and --project none takes all away.

    It holds for sessions that are submitted from now on.
    """
    values = _values(deny, project, image, site_wide, description)
    output.show(config.load().client.sandboxes.update(name, **values), form, _fields)


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a sandbox (administrators); sessions that were submitted with it keep its rules."""
    config.load().client.sandboxes.delete(name)
    print(f"Deleted sandbox {name}.")


def _values(
    deny: list[str] | None,
    projects: list[str] | None,
    images: list[str] | None,
    site_wide: bool | None,
    description: str | None,
) -> dict[str, Any]:
    return given(
        rules=None if deny is None else [] if deny == [NOBODY] else [parse_rule(text, "--deny") for text in deny],
        projects=[] if projects == [NOBODY] else projects,
        images=[] if images == [NOBODY] else images,
        site_wide=site_wide,
        description=description,
    )


def _table(sandboxes: list[Sandbox]) -> None:
    rows = [
        (sandbox["name"], str(len(sandbox["rules"])), _whose(sandbox), sandbox["description"]) for sandbox in sandboxes
    ]
    output.print_table(("NAME", "RULES", "FOR", "DESCRIPTION"), rows)


def _whose(sandbox: Sandbox) -> str:
    return ", ".join([*(["the site"] if sandbox["site_wide"] else []), *sandbox["projects"], *sandbox["images"]]) or "-"


def _fields(sandbox: Sandbox) -> None:
    output.print_fields(
        (
            ("Name", sandbox["name"]),
            ("Description", sandbox["description"]),
            ("For the site", "yes" if sandbox["site_wide"] else "no"),
            ("Projects", ", ".join(sandbox["projects"])),
            ("Images", ", ".join(sandbox["images"])),
            *((f"Denies {number}", format_rule(rule)) for number, rule in enumerate(sandbox["rules"], 1)),
        )
    )
