"""Rules of projects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.database import CAPACITY_LOCK, exclusively
from api.resources.list_changes import changed
from api.resources.projects import beside, capacity, quotas, repository
from api.resources.projects.schemas import Period, ProjectChange, ProjectRequest
from api.resources.users import service as users
from api.tables.projects import Membership, Project, ProjectRole
from common.errors import ConflictError, InputError, NotFoundError, Problem
from common.gpu.share import format_gpus
from common.sentence import Moment, Sentence

OF_MEMBERS = {"members", "add_members", "remove_members"}
OF_PEOPLE = OF_MEMBERS | {"managers", "add_managers", "remove_managers"}
OF_MANAGERS = OF_MEMBERS | {"session_access"}
"""What of a project its managers may change."""

every = repository.every
expired = repository.ended
is_expired = repository.is_ended
keeping_to = repository.keeping_to


async def visible(db: AsyncSession, caller: Identity, *, people: bool = False) -> Sequence[Project]:
    """Return the projects that the caller may see, by name; `people` reads their memberships with them."""
    return await repository.within(db, caller.reach(Action.PROJECT_READ), people=people)


async def get(
    db: AsyncSession, name: str, caller: Identity, field: str = "project", *, people: bool = False, lock: bool = False
) -> Project:
    """Return one project; raises NotFoundError also where it exists but the caller may not see it.

    `lock` is for who deletes it: no session comes to it any more until the transaction ends.
    """
    project = await repository.by_name(db, name, people=people, lock=lock)
    if project is None or not caller.may(Action.PROJECT_READ, project=project):
        raise NotFoundError(
            Sentence("there is no project {name} that you may see", name=name),
            where=field,
            hint=Sentence("list the projects, or ask to be a member"),
        )
    return project


async def named(db: AsyncSession, names: Iterable[str], field: str, *, domain: str | None = None) -> list[Project]:
    """Return projects by their names, those of a domain alone where one is given.

    Raises one InputError that lists every name that none has.
    """
    wanted = sorted(set(names))
    known = await repository.by_names(db, wanted)
    found = {project.name: project for project in known if domain in (None, project.domain)}
    missing = [
        Problem(
            field,
            Sentence("there is no project {name} of the domain {domain}", name=name, domain=domain)
            if domain
            else Sentence("there is no project {name}", name=name),
            Sentence("list the projects"),
        )
        for name in wanted
        if name not in found
    ]
    if missing:
        raise InputError.of(missing)
    return [found[name] for name in wanted]


async def check_domain(db: AsyncSession, name: str | None) -> None:
    """Raise InputError where something is to belong to a domain that there is not."""
    if name is not None and not await repository.is_domain(db, name):
        raise InputError(
            Sentence("there is no domain {name}", name=name), where="domain", hint=Sentence("create the domain first")
        )


def is_active(project: Project, at: datetime) -> bool:
    """Return whether a moment lies in a project's period."""
    return capacity.covers(project.starts_at, project.ends_at, at)


def check_active(project: Project, at: datetime) -> None:
    """Raise ConflictError where a project cannot be used at a moment."""
    if is_active(project, at):
        return
    if project.ends_at and project.ends_at <= at:
        ended = Moment.at(project.ends_at, seconds=True)
        raise ConflictError(
            Sentence("project {name} is not active: its period ended on {at}", name=project.name, at=ended),
            where="project",
            hint=Sentence("ask an administrator to change the period"),
        )
    begins = Moment.at(project.starts_at, seconds=True)
    raise ConflictError(
        Sentence("project {name} is not active: its period begins on {at}", name=project.name, at=begins),
        where="project",
        hint=Sentence("wait, or ask an administrator"),
    )


async def check_cap(db: AsyncSession, project: Project, milli: int, *, preemptible: bool) -> None:
    """Refuse what is larger than all that a project or its domain may hold, and so never runs; raises InputError."""
    is_limit = preemptible and project.over_quota
    most = cap(project) if is_limit else project.quota_milli
    if most is not None and milli > most:
        amounts = {"name": project.name, "most": format_gpus(most), "asked": format_gpus(milli)}
        raise InputError(
            Sentence("{name} may hold {most} GPU, and {asked} GPU are asked for", **amounts)
            if preemptible or not project.over_quota
            else Sentence(
                "{name} may hold {most} GPU by work that cannot be reclaimed, and {asked} GPU are asked for", **amounts
            ),
            where="gpu_milli",
            hint=_instead(project, most, is_limit=is_limit),
        )
    limit = await repository.limit_of_domain(db, project.domain) if project.domain else None
    if limit is not None and milli > limit:
        raise InputError(
            Sentence(
                "the projects of {domain} may hold {most} GPU together, and {asked} GPU are asked for",
                domain=project.domain,
                most=format_gpus(limit),
                asked=format_gpus(milli),
            ),
            where="gpu_milli",
            hint=Sentence("ask for fewer, or for a larger limit of {domain}", domain=project.domain),
        )


def _instead(project: Project, most: int, *, is_limit: bool) -> str:
    """Return what to do where more is asked for than the project may hold."""
    if is_limit:
        return Sentence("ask for fewer, or for a larger limit")
    if most:
        return Sentence("ask for fewer, or for a larger quota")
    if project.over_quota:
        return Sentence("submit it as preemptible, or ask an administrator for a quota")
    return Sentence("ask an administrator for a quota, or submit work that needs no GPU")


def cap(project: Project) -> int | None:
    """Return the most that a project may hold, in milli-GPU; None where it has no limit."""
    return project.limit_milli if project.over_quota else project.quota_milli


def quota_at(project: Project, at: datetime) -> int:
    """Return the quota that a project is guaranteed at a moment: nothing outside its period."""
    return project.quota_milli if is_active(project, at) else 0


async def create(db: AsyncSession, request: ProjectRequest, caller: Identity) -> Project:
    """Create a project; raises ConflictError where the name is taken or the cluster has not enough for a hard cap."""
    domain = request.domain or caller.domain
    caller.check(Action.PROJECT_CREATE, domain=domain)
    await check_domain(db, domain)
    await exclusively(db, CAPACITY_LOCK)
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a project {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    fields = request.model_dump(exclude={"period", "managers", "members", "domain"})
    project = Project(**fields, domain=domain, memberships=[])
    _set_period(project, request.period)
    await _set_people(db, project, request.managers, request.members, caller)
    await _check_groups(db, project, caller)
    quotas.check_weight(project, 0, caller)
    quotas.check_min_runtime(project, None, caller)
    quotas.check_limit(project, given=request.model_fields_set)
    beside.check(project, {}, caller)
    await quotas.check_domain(db, project, None, "quota_milli")
    await quotas.check_room(db, project, None, "quota_milli")
    repository.add(db, project)
    await db.flush()
    return project


def needed(request: ProjectChange) -> Action:
    """Return the action that a change needs, by what it is of."""
    return Action.PROJECT_MEMBERS if request.model_fields_set <= OF_MANAGERS else Action.PROJECT_CHANGE


async def change(db: AsyncSession, name: str, request: ProjectChange, caller: Identity) -> Project:
    """Change a project: its managers may set the members and who sees its sessions, administrators everything."""
    given = request.model_fields_set
    await exclusively(db, CAPACITY_LOCK)
    project = await get(db, name, caller, "name", people=True)
    caller.check(needed(request), project=project)
    before, hard_before, kept_to = quotas.of(project), quotas.hard(project), _groups_of(project)
    beyond, min_runtime_s, of_beside = quotas.beyond(project), project.min_runtime_s, beside.amounts(project)
    was_capped = not project.over_quota
    for field in given - OF_PEOPLE - {"period"}:
        setattr(project, field, getattr(request, field))
    await _check_groups(db, project, caller, kept_to.values())
    quotas.check_weight(project, beyond, caller)
    quotas.check_min_runtime(project, min_runtime_s, caller)
    quotas.check_limit(project, given=given)
    beside.check(project, of_beside, caller, was_capped=was_capped)
    if request.period:
        _set_period(project, request.period)
    if given & OF_PEOPLE:
        await _change_people(db, project, request, caller)
    field = "period" if "period" in given else "quota_milli"
    await quotas.check_domain(db, project, before, field)
    await quotas.check_room(db, project, hard_before, field)
    await db.flush()
    return project


async def delete(db: AsyncSession, project: Project) -> None:
    """Delete a project that `get` has locked."""
    await repository.delete(db, project)


def _set_period(project: Project, period: Period) -> None:
    # A period without a start keeps the one that there is; a new project begins now.
    project.starts_at = period.starts_at or project.starts_at or now()
    project.ends_at = period.ends_at
    if project.ends_at and project.ends_at <= project.starts_at:
        raise InputError(
            Sentence(
                "the period would end on {end}, before it starts on {start}",
                end=quotas.moment(project.ends_at),
                start=quotas.moment(project.starts_at),
            ),
            where="period.ends_at",
            hint=Sentence("write a later end"),
        )


async def _change_people(db: AsyncSession, project: Project, request: ProjectChange, caller: Identity) -> None:
    """Replace the lists of people, or change them by the names that come and go."""
    managers = changed(request, "managers", project.names(ProjectRole.MANAGER))
    members = changed(request, "members", project.names(ProjectRole.MEMBER))
    await _set_people(db, project, managers, members, caller)


async def _set_people(
    db: AsyncSession,
    project: Project,
    managers: Sequence[str] | None,
    members: Sequence[str] | None,
    caller: Identity,
) -> None:
    """Set the people; None keeps a list as it is. Who is in both is a manager.

    Into a domain's projects come its own people, and people of a domain into one that has none only by administrators
    of the site.
    """
    any_domain = caller.reach(Action.PROJECT_CHANGE).everything
    wanted = dict.fromkeys(project.names(ProjectRole.MEMBER) if members is None else members, ProjectRole.MEMBER)
    wanted |= dict.fromkeys(project.names(ProjectRole.MANAGER) if managers is None else managers, ProjectRole.MANAGER)
    people = {membership.user.name: membership for membership in project.memberships}
    for field, role in (("managers", ProjectRole.MANAGER), ("members", ProjectRole.MEMBER)):
        new = [name for name in wanted if wanted[name] is role and name not in people]
        found = await users.members(db, new, field, domain=project.domain, any_domain=any_domain)
        people |= {user.name: Membership(user=user) for user in found}
    for name, role in wanted.items():
        people[name].role = role
    project.memberships = [people[name] for name in sorted(wanted)]


def _groups_of(project: Project) -> dict[str, str]:
    """Return the resource groups that a project keeps to, by field."""
    fields = {"training_group": project.training_group, "interactive_group": project.interactive_group}
    return {field: name for field, name in fields.items() if name}


async def _check_groups(db: AsyncSession, project: Project, caller: Identity, before: Collection[str] = ()) -> None:
    """Refuse resource groups that there are not, or that belong to another domain than the project.

    To keep to a group is to be allowed in it. Only who may say that of the site's groups opens one in this way that the
    project may not use already; what was kept to `before` stays.
    """
    wanted = _groups_of(project)
    with db.no_autoflush:
        known = await repository.groups_for(db, project, wanted.values())
    problems = [
        Problem(field, f"there is no resource group {name} for this project", "create the group first, or name another")
        for field, name in wanted.items()
        if name not in known or not (known[name] or caller.may(Action.GROUP_ALLOW) or name in before)
    ]
    if problems:
        raise InputError.of(problems)
