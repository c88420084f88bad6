"""Projects: who shares which quota of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from appliance.cli import config, output, parse, project_text
from appliance.cli.options import complete_projects, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.words import Access, AfterProject, Expiry
from common.gpu.units import parse_gpus

app = group("Projects: list, show, create, update, delete, set the current one.")

NONE = "none"
SITE = "site"

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the project.", autocompletion=complete_projects)
]
QuotaOption = Annotated[str | None, typer.Option("--gpus", "-g", metavar="N", help="Quota in GPUs, such as 1 or 2.5.")]
OverQuotaOption = Annotated[
    bool | None, typer.Option("--over-quota/--no-over-quota", help="May it use more than its quota while GPUs idle?")
]
WeightOption = Annotated[
    str | None,
    typer.Option("--weight", metavar="N|quota", help="Its part of idle GPUs; quota: by that. 0: what is left."),
]
MostOption = Annotated[
    str | None, typer.Option("--limit", metavar="N|none", help="Most GPUs that it has in all, over its quota too.")
]
CpusOption = Annotated[
    str | None, typer.Option("--cpus", metavar="N|none", help="Quota in CPUs, guaranteed to sessions without GPUs.")
]
CpuLimitOption = Annotated[
    str | None, typer.Option("--cpu-limit", metavar="N|none", help="Most CPUs that it has in all, over that quota too.")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="512G|none", help="Quota in memory, as --cpus is in CPUs.")
]
MemoryLimitOption = Annotated[
    str | None, typer.Option("--memory-limit", metavar="1T|none", help="Most memory that it has in all.")
]
FromOption = Annotated[str | None, typer.Option("--from", metavar="DATE", help="First day or moment of its period.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="DATE|never", help="Last day or moment of its period.")
]
ExpiryOption = Annotated[
    Expiry | None, typer.Option("--on-expiry", help="Its sessions at the end: stop them, or let them finish.")
]
ManagersOption = Annotated[
    list[str] | None, typer.Option("--manager", metavar="USER", help="A manager; repeat for more. Replaces the list.")
]
MembersOption = Annotated[
    list[str] | None, typer.Option("--member", metavar="USER", help="A member; repeat for more. Replaces the list.")
]
AddManagersOption = Annotated[
    list[str] | None, typer.Option("--add-manager", metavar="USER", help="A further manager. Repeat for more.")
]
RemoveManagersOption = Annotated[
    list[str] | None,
    typer.Option("--remove-manager", metavar="USER", help="No manager any more; no member either. Repeat for more."),
]
AddMembersOption = Annotated[
    list[str] | None, typer.Option("--add-member", metavar="USER", help="A further member. Repeat for more.")
]
RemoveMembersOption = Annotated[
    list[str] | None, typer.Option("--remove-member", metavar="USER", help="No member any more. Repeat for more.")
]
TrainingOption = Annotated[
    str | None, typer.Option("--training-group", metavar="GROUP|none", help="Resource group of its training.")
]
InteractiveOption = Annotated[
    str | None,
    typer.Option("--interactive-group", metavar="GROUP|none", help="Resource group of its interactive work."),
]
LimitOption = Annotated[
    str | None, typer.Option("--interactive-limit", metavar="2h", help="Ends interactive sessions after it; 0s: never.")
]
ExtensionOption = Annotated[
    str | None, typer.Option("--interactive-extension", metavar="2h", help="What owners may add to it in total.")
]
MinRuntimeOption = Annotated[
    str | None,
    typer.Option("--min-runtime", metavar="TIME|site", help="Its sessions are not reclaimed before; site: as all."),
]
AccessOption = Annotated[
    Access | None,
    typer.Option("--session-access", help="Who sees its new sessions: its members, or of these the owner alone."),
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="What the project is for.")]


@app.command("set")
def set_current(name: NameArgument) -> None:
    """Make a project the current one, which later commands use."""
    remembered = config.load()
    project = remembered.client.projects.get(name)
    config.save(replace(remembered, project=project["name"]))
    print(f"Current project: {project['name']}")


@app.command("list")
def list_projects(form: FormatOption = Format.TABLE) -> None:
    """List your projects; the current one is marked with a star."""
    remembered = config.load()
    output.show(
        remembered.client.projects.list(), form, lambda projects: project_text.table(projects, remembered.project)
    )


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one project."""
    output.show(config.load().client.projects.get(name), form, project_text.fields)


@app.command("create")
def create(
    name: NameArgument,
    *,
    gpus: Annotated[str, typer.Option("--gpus", "-g", metavar="N", help="Quota in GPUs, such as 1 or 2.5.")],
    from_: FromOption = None,
    until: UntilOption = project_text.NEVER,
    over_quota: OverQuotaOption = None,
    weight: WeightOption = None,
    limit: MostOption = None,
    cpus: CpusOption = None,
    cpu_limit: CpuLimitOption = None,
    memory: MemoryOption = None,
    memory_limit: MemoryLimitOption = None,
    on_expiry: ExpiryOption = None,
    managers: ManagersOption = None,
    members: MembersOption = None,
    training_group: TrainingOption = None,
    interactive_group: InteractiveOption = None,
    interactive_limit: LimitOption = None,
    interactive_extension: ExtensionOption = None,
    min_runtime: MinRuntimeOption = None,
    session_access: AccessOption = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="The domain it belongs to.")] = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a project (administrators)."""
    changes = _changes(
        gpus=gpus,
        from_=from_,
        until=until,
        over_quota=over_quota,
        weight=weight,
        limit=limit,
        on_expiry=on_expiry,
        managers=managers,
        members=members,
        training_group=training_group,
        interactive_group=interactive_group,
        interactive_limit=interactive_limit,
        interactive_extension=interactive_extension,
        min_runtime=min_runtime,
        session_access=session_access,
        description=description,
    ) | _beside(cpus, cpu_limit, memory, memory_limit)
    project_text.show(config.load().client.projects.create(name=name, **changes, **given(domain=domain)), form)


@app.command("update")
def update(
    name: NameArgument,
    *,
    gpus: QuotaOption = None,
    from_: FromOption = None,
    until: UntilOption = None,
    over_quota: OverQuotaOption = None,
    weight: WeightOption = None,
    limit: MostOption = None,
    cpus: CpusOption = None,
    cpu_limit: CpuLimitOption = None,
    memory: MemoryOption = None,
    memory_limit: MemoryLimitOption = None,
    on_expiry: ExpiryOption = None,
    managers: ManagersOption = None,
    members: MembersOption = None,
    add_managers: AddManagersOption = None,
    remove_managers: RemoveManagersOption = None,
    add_members: AddMembersOption = None,
    remove_members: RemoveMembersOption = None,
    training_group: TrainingOption = None,
    interactive_group: InteractiveOption = None,
    interactive_limit: LimitOption = None,
    interactive_extension: ExtensionOption = None,
    min_runtime: MinRuntimeOption = None,
    session_access: AccessOption = None,
    description: DescriptionOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a project; what is left out stays. Managers may change members and --session-access."""
    client = config.load().client
    if from_ and until is None:
        # the API takes a period as a whole
        until = client.projects.get(name)["period"]["ends_at"] or project_text.NEVER
    if until and from_ is None:
        from_ = client.projects.get(name)["period"]["starts_at"]
    changes = _changes(
        gpus=gpus,
        from_=from_,
        until=until,
        over_quota=over_quota,
        weight=weight,
        limit=limit,
        on_expiry=on_expiry,
        managers=managers,
        members=members,
        training_group=training_group,
        interactive_group=interactive_group,
        interactive_limit=interactive_limit,
        interactive_extension=interactive_extension,
        min_runtime=min_runtime,
        session_access=session_access,
        description=description,
    )
    changes |= _beside(cpus, cpu_limit, memory, memory_limit)
    changes |= given(
        add_managers=add_managers,
        remove_managers=remove_managers,
        add_members=add_members,
        remove_members=remove_members,
    )
    project_text.show(client.projects.update(name, **changes), form)


@app.command("delete")
def delete(
    name: NameArgument,
    *,
    volumes: Annotated[
        AfterProject | None, typer.Option("--volumes", help="What becomes of its volumes; needed where it has any.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PROJECT", help="Who gets them: with --volumes hand-over."),
    ] = None,
) -> None:
    """Delete a project that has no live session (administrators)."""
    remembered = config.load()
    remembered.client.projects.delete(name, volumes=volumes, to=to)
    if remembered.project == name:
        config.save(replace(remembered, project=""))
    print(f"Deleted project {name}.")


def _changes(
    *,
    gpus: str | None,
    from_: str | None,
    until: str | None,
    over_quota: bool | None,
    weight: str | None,
    limit: str | None,
    on_expiry: Expiry | None,
    managers: list[str] | None,
    members: list[str] | None,
    training_group: str | None,
    interactive_group: str | None,
    interactive_limit: str | None,
    interactive_extension: str | None,
    min_runtime: str | None,
    session_access: Access | None,
    description: str | None,
) -> dict[str, Any]:
    """Return what a request says of a project, without what was not given."""
    changes = given(
        quota_milli=None if gpus is None else parse_gpus(gpus, "--gpus"),
        over_quota=over_quota,
        on_expiry=on_expiry,
        managers=_people(managers),
        members=_people(members),
        interactive_limit_s=_seconds(interactive_limit, "--interactive-limit"),
        interactive_extension_s=_seconds(interactive_extension, "--interactive-extension"),
        session_access=session_access,
        description=description,
    )
    if until:
        ends_at = None if until == project_text.NEVER else parse.moment(until, "--until", ends=True)
        starts_at = parse.moment(from_, "--from") if from_ else None
        changes["period"] = {"ends_at": ends_at, **given(starts_at=starts_at)}
    if weight is not None:
        changes["over_quota_weight"] = parse.weight(weight, "--weight")
    if limit is not None:
        changes["limit_milli"] = None if limit == NONE else parse_gpus(limit, "--limit")
    if min_runtime is not None:
        changes["min_runtime_s"] = None if min_runtime == SITE else parse.duration(min_runtime, "--min-runtime")
    for key, name in (("training_group", training_group), ("interactive_group", interactive_group)):
        if name is not None:
            changes[key] = None if name == NONE else name
    return changes


def _beside(cpus: str | None, cpu_limit: str | None, memory: str | None, memory_limit: str | None) -> dict[str, Any]:
    """Return what a request says of CPU and memory."""
    changes: dict[str, Any] = {}
    for key, text, option in (("cpu_quota_milli", cpus, "--cpus"), ("cpu_limit_milli", cpu_limit, "--cpu-limit")):
        if text is not None:
            changes[key] = None if text == NONE else parse.cpu_milli(text, option)
    of_memory = ("memory_quota_mib", memory, "--memory"), ("memory_limit_mib", memory_limit, "--memory-limit")
    for key, text, option in of_memory:
        if text is not None:
            changes[key] = None if text == NONE else parse.size_mib(text, option)
    return changes


def _people(names: list[str] | None) -> list[str] | None:
    """Return a list of users; `none` alone empties it."""
    return [] if names == [NONE] else names


def _seconds(text: str | None, field: str) -> int | None:
    return None if text is None else parse.duration(text, field)
