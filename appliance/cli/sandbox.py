"""Sandboxes: what programs of sessions may not ask of the kernel."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from appliance.cli import config, output
from appliance.cli.options import complete_sandboxes, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Sandbox, SandboxRule
from common.errors import InputError

app = group("Sandboxes: what programs of sessions may not ask of the kernel.")

KILL = "kill"
"""How a rule is written that ends the process."""
NOBODY = "none"
HINT = "write it like mkdir,mkdirat:EROFS or socket(0=16|17):kill or clone(0&0x10000000)"
_RULE = re.compile(r"(?P<calls>[a-z0-9_,]+)(?:\((?P<when>[^()]+)\))?(?::(?P<effect>kill|E[A-Z0-9]+))?")
_TEST = re.compile(r"(?P<argument>\d)(?:=(?P<values>\w+(?:\|\w+)*)|&(?P<bits>\w+))")

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


def parse_rule(text: str) -> dict[str, Any]:
    """Return the rule that a person writes; raises InputError."""
    if (found := _RULE.fullmatch(text.replace(" ", ""))) is None:
        raise InputError(f"{text!r} is no rule", where="--deny", hint=HINT)
    effect = found["effect"] or "EPERM"
    rule: dict[str, Any] = {"calls": found["calls"].split(","), "ends": effect == KILL}
    if effect != KILL:
        rule["errno"] = effect
    if found["when"]:
        rule["when"] = [_test(part) for part in found["when"].split(",")]
    return rule


def format_rule(rule: SandboxRule) -> str:
    """Return a rule as a person writes it."""
    tests = [
        f"{test['argument']}&{test['bits']:#x}"
        if test["bits"]
        else f"{test['argument']}={'|'.join(map(str, test['values']))}"
        for test in rule["when"]
    ]
    when = f"({','.join(tests)})" if tests else ""
    return f"{','.join(rule['calls'])}{when}:{KILL if rule['ends'] else rule['errno']}"


def _test(text: str) -> dict[str, Any]:
    if (found := _TEST.fullmatch(text)) is None:
        raise InputError(f"{text!r} is no test of an argument", where="--deny", hint=HINT)
    argument = int(found["argument"])
    if found["bits"]:
        return {"argument": argument, "bits": _number(found["bits"])}
    return {"argument": argument, "values": [_number(value) for value in found["values"].split("|")]}


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{text!r} is no number", where="--deny", hint="write it like 17 or 0x11") from None


def _values(
    deny: list[str] | None,
    projects: list[str] | None,
    images: list[str] | None,
    site_wide: bool | None,
    description: str | None,
) -> dict[str, Any]:
    return given(
        rules=None if deny is None else [] if deny == [NOBODY] else [parse_rule(text) for text in deny],
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
