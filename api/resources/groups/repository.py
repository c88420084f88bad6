"""Queries of resource groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table, case, func, select
from sqlalchemy import delete as deletion
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.database import among, fingerprint
from api.resources.groups.permissions import Group
from api.resources.groups.selection import Selectors, Traits
from api.tables.groups import ResourceGroup, group_nodes, group_projects, group_users
from api.tables.nodes import Gpu, Node
from api.tables.sessions import ENDED, Session
from api.tables.users import User


async def by_name(db: AsyncSession, name: str, *, lock: bool = False) -> ResourceGroup | None:
    """Return the group of that name with all that belongs to it; `lock` keeps it as it is in this transaction."""
    query = _whole().where(ResourceGroup.name == name)
    if lock:
        query = query.with_for_update(of=ResourceGroup)
    return (await db.scalars(query)).one_or_none()


async def every(db: AsyncSession) -> Sequence[ResourceGroup]:
    """Return all groups with all that belongs to them, by name."""
    return (await db.scalars(_whole().order_by(ResourceGroup.name))).all()


async def permissions(db: AsyncSession) -> list[Group]:
    """Return who may use which group."""
    return [
        Group(name, open_, domain, frozenset(users), frozenset(projects))
        for name, open_, domain, users, projects in await db.execute(_permissions())
    ]


@cache
def _permissions() -> Select[str, bool, str | None, list[UUID], list[UUID]]:
    described = (ResourceGroup.name, ResourceGroup.open, ResourceGroup.domain)
    return select(*described, _members(group_users), _members(group_projects))


def version() -> tuple[ColumnElement[Any], ...]:
    """Return what are other numbers whenever a group changes, or nodes, users or projects come to it or leave it."""
    described = (ResourceGroup.id, ResourceGroup.name, ResourceGroup.open, ResourceGroup.domain)
    selecting = (ResourceGroup.gpu_model, ResourceGroup.switch, ResourceGroup.region)
    members = (fingerprint(*table.c) for table in (group_nodes, group_users, group_projects))
    return fingerprint(*described, *selecting), *members


def version_of_people() -> ColumnElement[Any]:
    """Return what is another number whenever a user comes to another domain; nothing while no group belongs to one."""
    closed_off = select(ResourceGroup.id).where(ResourceGroup.domain.is_not(None)).exists()
    return case((closed_off, fingerprint(User.id, User.domain)))


async def leave_other_domains(db: AsyncSession, user: User) -> None:
    """Take a user off the lists of all groups that belong to another domain."""
    others = select(ResourceGroup.id).where(
        ResourceGroup.domain.is_not(None), ResourceGroup.domain.is_distinct_from(user.domain)
    )
    listed = group_users.c.user_id == user.id, group_users.c.group_id.in_(others)
    await db.execute(deletion(group_users).where(*listed))


async def domains_of_users(db: AsyncSession) -> dict[UUID, str]:
    """Return the domains of those users who have one."""
    query = select(User.id, User.domain).where(User.domain.is_not(None))
    return {user_id: domain for user_id, domain in await db.execute(query) if domain is not None}


async def selectors(db: AsyncSession) -> list[tuple[str, Selectors]]:
    """Return what selects nodes into each group."""
    query = select(ResourceGroup.name, ResourceGroup.gpu_model, ResourceGroup.switch, ResourceGroup.region)
    return [(name, Selectors(*asked)) for name, *asked in await db.execute(query.order_by(ResourceGroup.name))]


async def named_nodes(db: AsyncSession) -> dict[str, set[str]]:
    """Return the groups that name a node, by node."""
    query = select(Node.name, ResourceGroup.name).join(group_nodes, group_nodes.c.node_id == Node.id)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for node, group in await db.execute(query.join(ResourceGroup, ResourceGroup.id == group_nodes.c.group_id)):
        groups[node].add(group)
    return groups


async def traits(db: AsyncSession, nodes: Collection[UUID] | None = None) -> list[Traits]:
    """Return what some nodes, or all, can be selected by."""
    query = select(Node.name, Node.region, Node.switch, Gpu.model).outerjoin(Gpu, Gpu.node_id == Node.id).distinct()
    if nodes is not None:
        query = query.where(among(Node.id, nodes))
    places: dict[str, tuple[str, str]] = {}
    gpu_models: defaultdict[str, set[str]] = defaultdict(set)
    for name, region, switch, model in await db.execute(query):
        places[name] = (region, switch)
        if model is not None:
            gpu_models[name].add(model)
    return [Traits(name, *place, frozenset(gpu_models[name])) for name, place in places.items()]


async def nodes(db: AsyncSession, names: Iterable[str]) -> Sequence[Node]:
    """Return the nodes of those names that exist."""
    return (await db.scalars(select(Node).where(Node.name.in_(list(names))).order_by(Node.name))).all()


async def count_live(db: AsyncSession, group: str) -> int:
    """Return how many sessions that have not ended ask for a group."""
    query = select(func.count()).select_from(Session).where(Session.group == group, Session.state.not_in(ENDED))
    return (await db.scalar(query)) or 0


async def hold(db: AsyncSession, name: str) -> bool:
    """Keep a group from being deleted until the transaction ends; returns whether there is one."""
    query = select(ResourceGroup.id).where(ResourceGroup.name == name).with_for_update(read=True)
    return (await db.scalar(query)) is not None


def add(db: AsyncSession, group: ResourceGroup) -> None:
    """Add a group to the transaction."""
    db.add(group)


async def delete(db: AsyncSession, group: ResourceGroup) -> None:
    """Delete a group; its nodes, users and projects stay."""
    await db.delete(group)


def _whole() -> Select[ResourceGroup]:
    return select(ResourceGroup).options(
        selectinload(ResourceGroup.nodes),
        selectinload(ResourceGroup.users),
        selectinload(ResourceGroup.projects),
    )


def _members(members: Table) -> ColumnElement[list[UUID]]:
    group_id, member_id = members.c
    return func.array(select(member_id).where(group_id == ResourceGroup.id).scalar_subquery())


async def names_of_domain(db: AsyncSession, domain: str) -> set[str]:
    """Return the names of a domain's groups."""
    return set(await db.scalars(select(ResourceGroup.name).where(ResourceGroup.domain == domain)))
