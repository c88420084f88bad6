"""Rules of resource groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.resources.groups import repository
from api.resources.groups.permissions import Groups, Permissions, affinity
from api.resources.groups.schemas import GroupChange, GroupRequest
from api.resources.list_changes import changed
from api.resources.projects import service as projects
from api.resources.users import service as users
from api.tables.groups import ResourceGroup
from api.tables.nodes import Node
from api.tables.projects import Project
from api.tables.sessions import Kind
from api.tables.users import User
from common.errors import ConflictError, InputError, NotFoundError, Problem
from common.sentence import Sentence, Several

version = repository.version
version_of_people = repository.version_of_people

LISTS = {f"{verb}{field}" for verb in ("", "add_", "remove_") for field in ("nodes", "users", "projects")}
PEOPLE = {"description", "purpose", "open", *(field for field in LISTS if not field.endswith("nodes"))}
"""What the administrators of a group's domain may change of it; the rest is about the site's hardware."""


async def permissions(db: AsyncSession) -> Permissions:
    """Return who may use which group, for many questions at once."""
    groups = await repository.permissions(db)
    closed_off = any(group.domain for group in groups)
    return Permissions(groups, await repository.domains_of_users(db) if closed_off else {})


async def keep(db: AsyncSession, wanted: str) -> None:
    """Keep a group that was asked for until the transaction ends; raises InputError where there is none."""
    if not await repository.hold(db, wanted):
        raise _not_usable(wanted)


def allowed(permissions: Permissions, user_id: UUID, project: Project, kind: Kind, wanted: str | None = None) -> Groups:
    """Return where a session of a user may run; raises InputError where that is nowhere."""
    groups, only = permissions.allowed(user_id, project, kind, wanted)
    if groups == () and only:
        kept_to = affinity(project, kind)
        if kept_to is None:
            raise _not_usable(str(wanted))
        raise InputError(
            Sentence(
                "{kind} sessions of {name} run in the resource group {kept_to} only",
                kind=kind,
                name=project.name,
                kept_to=kept_to,
            ),
            where="group",
            hint=Sentence("leave the group out"),
        )
    return groups, only


async def leave_other_domains(db: AsyncSession, user: User) -> None:
    """Take a user who has been moved off the lists of the groups of other domains."""
    await repository.leave_other_domains(db, user)


async def by_node(db: AsyncSession, nodes: Collection[UUID] | None = None) -> dict[str, tuple[str, ...]]:
    """Return the groups of every node that is in any, of some nodes or of all."""
    named, selectors = await repository.named_nodes(db), await repository.selectors(db)
    groups: dict[str, tuple[str, ...]] = {}
    for node in await repository.traits(db, nodes) if named or selectors else ():
        found = named.get(node.name, set()) | {group for group, asked in selectors if asked.match(node)}
        if found:
            groups[node.name] = tuple(sorted(found))
    return groups


async def names_of_domain(db: AsyncSession, domain: str) -> set[str]:
    """Return the names of a domain's groups."""
    return await repository.names_of_domain(db, domain)


async def present(db: AsyncSession) -> Mapping[str, list[str]]:
    """Return the nodes of every group that has any."""
    nodes: dict[str, list[str]] = {}
    for node, groups in (await by_node(db)).items():
        for group in groups:
            nodes.setdefault(group, []).append(node)
    return nodes


async def visible(db: AsyncSession, caller: Identity) -> Sequence[ResourceGroup]:
    """Return the groups that the caller may use or looks after, by name."""
    own = await usable(db, caller)
    return [group for group in await repository.every(db) if group.name in own or _looks_after(caller, group)]


async def get(db: AsyncSession, name: str, caller: Identity, *, lock: bool = False) -> ResourceGroup:
    """Return one group; raises NotFoundError also where it exists but is not for the caller."""
    group = await repository.by_name(db, name, lock=lock)
    if group is None or not (_looks_after(caller, group) or name in await usable(db, caller)):
        raise NotFoundError(
            Sentence("there is no resource group {name} that you may see", name=name),
            where="name",
            hint=Sentence("list the resource groups"),
        )
    return group


async def create(db: AsyncSession, request: GroupRequest) -> ResourceGroup:
    """Create a group; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a group {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    await projects.check_domain(db, request.domain)
    lists = {"nodes", "users", "projects"}
    group = ResourceGroup(**request.model_dump(exclude=lists), nodes=[], users=[], projects=[])
    await _set_lists(db, group, request)
    repository.add(db, group)
    await db.flush()
    return group


def needed(request: GroupChange) -> Action:
    """Return the action that a change needs, by what it is of."""
    return Action.GROUP_ALLOW if request.model_fields_set <= PEOPLE else Action.GROUP_MANAGE


async def change(db: AsyncSession, name: str, request: GroupChange, caller: Identity) -> ResourceGroup:
    """Change a group: the administrators of its domain say who may use it, those of the site what belongs to it."""
    group = await get(db, name, caller, lock=True)
    given = request.model_fields_set
    caller.check(needed(request), domain=group.domain)
    if "domain" in given:
        await _check_move(db, group, request.domain)
    for field in given - LISTS:
        setattr(group, field, getattr(request, field))
    await _set_lists(db, group, request)
    await db.flush()
    return group


async def delete(db: AsyncSession, name: str, caller: Identity) -> None:
    """Delete a group; raises ConflictError while a project keeps to it or a live session has asked for it."""
    group = await get(db, name, caller, lock=True)
    keeping = await projects.keeping_to(db, name)
    if keeping:
        raise ConflictError(
            Sentence("these projects keep to {name}: {projects}", name=name, projects=Several(keeping)),
            where="name",
            hint=Sentence("give them another group, or none"),
        )
    live = await repository.count_live(db, name)
    if live:
        raise ConflictError(
            Sentence.counted(
                "{count} live session asks for {name}", "{count} live sessions ask for {name}", live, name=name
            ),
            where="name",
            hint=Sentence("delete the sessions first"),
        )
    await repository.delete(db, group)


async def _check_move(db: AsyncSession, group: ResourceGroup, domain: str | None) -> None:
    """Raise an error where a group cannot belong to a domain: there is none, or projects of others keep to the group.

    Whoever is on its lists is looked at with these.
    """
    await projects.check_domain(db, domain)
    if domain and (keeping := await projects.keeping_to(db, group.name, outside=domain)):
        raise ConflictError(
            Sentence(
                "these projects are not of {domain} and keep to {group}: {projects}",
                domain=domain,
                group=group.name,
                projects=Several(keeping),
            ),
            where="domain",
            hint=Sentence("give them another group, or none"),
        )


def _looks_after(caller: Identity, group: ResourceGroup) -> bool:
    """Return whether the caller sees the group for another reason than being allowed to use it."""
    return caller.may(Action.GROUP_OVERSEE, domain=group.domain)


async def usable(db: AsyncSession, caller: Identity) -> tuple[str, ...]:
    """Return the names of the groups that a caller may use, those that are for few first."""
    return (await permissions(db)).usable(caller.id, caller.member_of)


async def _set_lists(db: AsyncSession, group: ResourceGroup, request: GroupRequest | GroupChange) -> None:
    nodes = changed(request, "nodes", [node.name for node in group.nodes])
    people = changed(request, "users", [user.name for user in group.users])
    projects_ = changed(request, "projects", [project.name for project in group.projects])
    if nodes is not None:
        group.nodes = await _nodes(db, nodes)
    if people is not None:
        group.users = await users.members(db, people, "users", domain=group.domain)
    if projects_ is not None:
        group.projects = await projects.named(db, projects_, "projects", domain=group.domain)
    strangers = [
        Problem(
            field,
            Sentence("{name} is not of the domain {domain}", name=item.name, domain=group.domain),
            Sentence("leave it out"),
        )
        for field, items in (("users", group.users), ("projects", group.projects))
        for item in items
        if group.domain and item.domain != group.domain
    ]
    if strangers:
        raise InputError.of(strangers)


async def _nodes(db: AsyncSession, names: Sequence[str]) -> list[Node]:
    found = {node.name: node for node in await repository.nodes(db, names)}
    missing = [
        Problem("nodes", Sentence("there is no node {name}", name=name), Sentence("list the nodes"))
        for name in sorted(set(names))
        if name not in found
    ]
    if missing:
        raise InputError.of(missing)
    return list(found.values())


def _not_usable(group: str) -> InputError:
    return InputError(
        Sentence("there is no resource group {group} that you may use", group=group),
        where="group",
        hint=Sentence("list the resource groups"),
    )
