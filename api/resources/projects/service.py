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
from api.resources.projects import beside, capacity, repository
from api.resources.projects.capacity import QuotaPeriod
from api.resources.projects.schemas import Period, ProjectChange, ProjectRequest
from api.resources.users import service as users
from api.tables.projects import Membership, Project, ProjectRole
from common.errors import ConflictError, ForbiddenError, InputError, NotFoundError, Problem
from common.gpu.share import MILLI, format_gpus
from common.sentence import Moment, Sentence

NO_NODE = "no node is known yet: nothing says whether the quotas fit the cluster"

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
    place = f" of the domain {domain}" if domain else ""
    missing = [
        Problem(field, f"there is no project {name}{place}", "list the projects")
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
    _check_weight(project, 0, caller)
    _check_min_runtime(project, None, caller)
    _check_limit(project, given=request.model_fields_set)
    beside.check(project, {}, caller)
    await _check_domain(db, project, None, "quota_milli")
    await _check_room(db, project, None, "quota_milli")
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
    before, hard_before, kept_to = _quota(project), _hard_quota(project), _groups_of(project)
    beyond, min_runtime_s, of_beside = _beyond_quota(project), project.min_runtime_s, beside.amounts(project)
    was_capped = not project.over_quota
    for field in given - OF_PEOPLE - {"period"}:
        setattr(project, field, getattr(request, field))
    await _check_groups(db, project, caller, kept_to.values())
    _check_weight(project, beyond, caller)
    _check_min_runtime(project, min_runtime_s, caller)
    _check_limit(project, given=given)
    beside.check(project, of_beside, caller, was_capped=was_capped)
    if request.period:
        _set_period(project, request.period)
    if given & OF_PEOPLE:
        await _change_people(db, project, request, caller)
    field = "period" if "period" in given else "quota_milli"
    await _check_domain(db, project, before, field)
    await _check_room(db, project, hard_before, field)
    await db.flush()
    return project


async def delete(db: AsyncSession, project: Project) -> None:
    """Delete a project that `get` has locked."""
    await repository.delete(db, project)


async def warnings(db: AsyncSession, projects: Sequence[Project], at: datetime) -> list[list[str]]:
    """Return for each project what there is to warn of: quotas that come to more than the cluster has."""
    milli = await repository.known_milli(db)
    if milli is None:
        return [[NO_NODE] for _ in projects]
    course = capacity.steps(await repository.quota_periods(db, hard_only=False), at)
    return [_warnings(course, project, milli) for project in projects]


def _warnings(course: Sequence[capacity.Step], project: Project, milli: int) -> list[str]:
    step = capacity.overfull(course, _quota(project), milli)
    if step is None:
        return []
    total, there = format_gpus(step.milli), format_gpus(milli)
    return [f"from {_moment(step.since)} the quotas of all projects come to {total} GPUs, and the cluster has {there}"]


def _set_period(project: Project, period: Period) -> None:
    # A period without a start keeps the one that there is; a new project begins now.
    project.starts_at = period.starts_at or project.starts_at or now()
    project.ends_at = period.ends_at
    if project.ends_at and project.ends_at <= project.starts_at:
        raise InputError(
            f"the period would end on {_moment(project.ends_at)}, before it starts on {_moment(project.starts_at)}",
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


def _beyond_quota(project: Project) -> int:
    """Return by how many milli-GPU a project's weight is worth more than its quota, which is its weight without one."""
    return max(0, (project.over_quota_weight or 0) * MILLI - project.quota_milli)


def _check_weight(project: Project, before: int, caller: Identity) -> None:
    """Refuse a weight that takes more of what is spare from other domains than the quota would, or than it did."""
    if _beyond_quota(project) > before and not caller.may(Action.PROJECT_WEIGH):
        raise ForbiddenError(
            f"you may not {Action.PROJECT_WEIGH}",
            where="over_quota_weight",
            hint=Sentence(
                "choose a weight up to the quota of {quota} GPUs, or ask an administrator",
                quota=format_gpus(project.quota_milli),
            ),
        )


def _check_min_runtime(project: Project, before: int | None, caller: Identity) -> None:
    """Refuse another time for which sessions keep what other domains may have a right to, but by the site's people."""
    if project.min_runtime_s != before and not caller.may(Action.PROJECT_WEIGH):
        raise ForbiddenError(
            Sentence("you may not say how long sessions run before they are reclaimed"),
            where="min_runtime_s",
            hint=Sentence("leave it as it is, or ask an administrator of the site"),
        )


def _check_limit(project: Project, *, given: Collection[str]) -> None:
    """Refuse a limit that says something else than the quota does."""
    limit, where = project.limit_milli, "limit_milli" if "limit_milli" in given else "quota_milli"
    if limit is None:
        return
    if not project.over_quota:
        raise InputError(
            Sentence("a quota that is a hard cap is the limit itself"),
            where=where if where in given else "over_quota",
            hint=Sentence("take the limit away, or let the project go over its quota"),
        )
    if limit < project.quota_milli:
        raise InputError(
            Sentence(
                "the limit would be {limit} GPUs, and the quota is {quota}",
                limit=format_gpus(limit),
                quota=format_gpus(project.quota_milli),
            ),
            where=where,
            hint=Sentence("choose a limit that is no less than the quota, or take it away"),
        )


async def _check_domain(db: AsyncSession, project: Project, before: QuotaPeriod | None, field: str) -> None:
    """Refuse a quota that the domain may not have over the whole period beside those of its other projects."""
    limit = await repository.quota_of_domain(db, project.domain) if project.domain else None
    if limit is None:
        return
    others = await repository.quota_periods(db, hard_only=False, but=project.id, domain=project.domain)
    step = capacity.excess(others, before, _quota(project), capacity=limit, now=now())
    if step:
        raise ConflictError(
            f"from {_moment(step.since)} the quotas of {project.domain} would come to {format_gpus(step.milli)} GPUs, "
            f"and the domain may have {format_gpus(limit)}",
            where=field,
            hint=Sentence(
                "choose a smaller quota or another period, or ask an administrator of the site for a larger domain"
            ),
        )


async def _check_room(db: AsyncSession, project: Project, before: QuotaPeriod | None, field: str) -> None:
    """Refuse a hard cap that the cluster cannot hold over the whole period beside those of the others."""
    milli = await repository.known_milli(db)
    quota = _hard_quota(project)
    if quota is None or milli is None:
        return
    others = await repository.quota_periods(db, hard_only=True, but=project.id)
    step = capacity.excess(others, before, quota, capacity=milli, now=now())
    if step:
        raise ConflictError(
            f"from {_moment(step.since)} the hard quotas would come to {format_gpus(step.milli)} GPUs, "
            f"and the cluster has {format_gpus(milli)}",
            where=field,
            hint=Sentence("choose a smaller quota or another period, or let the project go over its quota"),
        )


def _quota(project: Project) -> QuotaPeriod:
    return QuotaPeriod(project.quota_milli, project.starts_at, project.ends_at)


def _hard_quota(project: Project) -> QuotaPeriod | None:
    return None if project.over_quota else _quota(project)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
