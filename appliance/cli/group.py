"""Resource groups: nodes that belong together, and who may use them."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.options import complete_groups, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Group

app = group("Resource groups: nodes, and who may use them.")

NONE = "none"

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the resource group.", autocompletion=complete_groups)
]
NodesOption = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NODE|none", help="A node of it; repeat for more. Replaces the list."),
]
ModelOption = Annotated[
    str | None, typer.Option("--gpu-model", metavar="TEXT", help="Every node whose GPUs are called so, such as V100.")
]
SwitchOption = Annotated[str | None, typer.Option("--switch", metavar="NAME", help="Every node at this leaf switch.")]
RegionOption = Annotated[str | None, typer.Option("--region", metavar="NAME", help="Every node of this region.")]
OpenOption = Annotated[bool | None, typer.Option("--open/--closed", help="For everybody, or for those named only.")]
UsersOption = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="USER|none", help="A user who may use it; repeat for more. Replaces the list."),
]
ProjectsOption = Annotated[
    list[str] | None,
    typer.Option("--project", metavar="NAME|none", help="A project that may use it; repeat for more."),
]
AddNodesOption = Annotated[
    list[str] | None, typer.Option("--add-node", metavar="NODE", help="A further node. Repeat for more.")
]
RemoveNodesOption = Annotated[
    list[str] | None, typer.Option("--remove-node", metavar="NODE", help="Not its node any more. Repeat for more.")
]
AddUsersOption = Annotated[
    list[str] | None, typer.Option("--add-user", metavar="USER", help="A further user. Repeat for more.")
]
RemoveUsersOption = Annotated[
    list[str] | None, typer.Option("--remove-user", metavar="USER", help="Not its user any more. Repeat for more.")
]
AddProjectsOption = Annotated[
    list[str] | None, typer.Option("--add-project", metavar="NAME", help="A further project. Repeat for more.")
]
RemoveProjectsOption = Annotated[
    list[str] | None,
    typer.Option("--remove-project", metavar="NAME", help="Not its project any more. Repeat for more."),
]
PurposeOption = Annotated[str | None, typer.Option("--purpose", metavar="WORDS", help="What it is for, in few words.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="More about it.")]


@app.command("list")
def list_groups(form: FormatOption = Format.TABLE) -> None:
    """List the resource groups that you may use."""
    output.show(config.load().client.groups.list(), form, _table)


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one resource group with its nodes."""
    output.show(config.load().client.groups.get(name), form, _fields)


@app.command("create")
def create(
    name: NameArgument,
    *,
    nodes: NodesOption = None,
    gpu_model: ModelOption = None,
    switch: SwitchOption = None,
    region: RegionOption = None,
    open_: OpenOption = None,
    users: UsersOption = None,
    projects: ProjectsOption = None,
    purpose: PurposeOption = None,
    description: DescriptionOption = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="The domain it belongs to.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a resource group (administrators)."""
    request = given(
        nodes=_list(nodes),
        gpu_model=gpu_model,
        switch=switch,
        region=region,
        open=open_,
        users=_list(users),
        projects=_list(projects),
        purpose=purpose,
        description=description,
        domain=domain,
    )
    output.show(config.load().client.groups.create(name=name, **request), form, _fields)


@app.command("update")
def update(
    name: NameArgument,
    *,
    nodes: NodesOption = None,
    gpu_model: ModelOption = None,
    switch: SwitchOption = None,
    region: RegionOption = None,
    open_: OpenOption = None,
    users: UsersOption = None,
    projects: ProjectsOption = None,
    add_nodes: AddNodesOption = None,
    remove_nodes: RemoveNodesOption = None,
    add_users: AddUsersOption = None,
    remove_users: RemoveUsersOption = None,
    add_projects: AddProjectsOption = None,
    remove_projects: RemoveProjectsOption = None,
    purpose: PurposeOption = None,
    description: DescriptionOption = None,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="NAME|none", help="The domain it belongs to; none: the site.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a resource group (administrators); what is left out stays. Sessions that run in it go on."""
    changes = given(
        nodes=_list(nodes),
        gpu_model=gpu_model,
        switch=switch,
        region=region,
        open=open_,
        users=_list(users),
        projects=_list(projects),
        add_nodes=add_nodes,
        remove_nodes=remove_nodes,
        add_users=add_users,
        remove_users=remove_users,
        add_projects=add_projects,
        remove_projects=remove_projects,
        purpose=purpose,
        description=description,
    )
    if domain is not None:
        changes["domain"] = None if domain == NONE else domain
    output.show(config.load().client.groups.update(name, **changes), form, _fields)


@app.command("allow")
def allow(
    name: NameArgument,
    *,
    users: Annotated[list[str] | None, typer.Option("--user", metavar="USER", help="Repeat for more.")] = None,
    projects: Annotated[list[str] | None, typer.Option("--project", metavar="NAME", help="Repeat for more.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Let users and projects use a resource group, beside those that may already."""
    changes = given(add_users=users, add_projects=projects)
    output.show(config.load().client.groups.update(name, **changes), form, _fields)


@app.command("deny")
def deny(
    name: NameArgument,
    *,
    users: Annotated[list[str] | None, typer.Option("--user", metavar="USER", help="Repeat for more.")] = None,
    projects: Annotated[list[str] | None, typer.Option("--project", metavar="NAME", help="Repeat for more.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Take users and projects off a resource group; their sessions that run in it go on."""
    changes = given(remove_users=users, remove_projects=projects)
    output.show(config.load().client.groups.update(name, **changes), form, _fields)


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a resource group that no project keeps to (administrators)."""
    config.load().client.groups.delete(name)
    print(f"Deleted resource group {name}.")


def _list(names: list[str] | None) -> list[str] | None:
    """Return a list of names; `none` alone empties it."""
    return [] if names == [NONE] else names


def _table(groups: list[Group]) -> None:
    rows = [
        (
            group["name"],
            str(len(group["present"])),
            _selected(group) or "-",
            "everybody" if group["open"] else output.listed([*group["users"], *group["projects"]]),
            group["purpose"] or "-",
        )
        for group in groups
    ]
    output.print_table(("NAME", "NODES", "ALL WITH", "FOR", "PURPOSE"), rows)


def _fields(group: Group) -> None:
    output.print_fields(
        (
            ("Name", group["name"]),
            ("Purpose", group["purpose"]),
            ("Description", group["description"]),
            ("Domain", group["domain"] or ""),
            ("Nodes", output.listed(group["present"])),
            ("Named nodes", ", ".join(group["nodes"])),
            ("All with", _selected(group)),
            ("For", "everybody" if group["open"] else "those named"),
            ("Users", ", ".join(group["users"])),
            ("Projects", ", ".join(group["projects"])),
            ("Created", output.moment(group["created_at"])),
        )
    )


def _selected(group: Group) -> str:
    chosen = (("GPU", group["gpu_model"]), ("switch", group["switch"]), ("region", group["region"]))
    return ", ".join(f"{kind} {value}" for kind, value in chosen if value)
