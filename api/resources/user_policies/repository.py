"""Queries of user policies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, and_, bindparam, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.domains import Domain
from api.tables.sessions import ENDED, HOLDING, HOLDS, Session, State
from api.tables.user_policies import UserPolicy
from api.tables.users import User

_HOLD_USER = select(User.domain).where(User.id == bindparam("user_id")).with_for_update()


async def by_name(db: AsyncSession, name: str) -> UserPolicy | None:
    """Return the policy of that name."""
    return await db.get(UserPolicy, name)


async def every(db: AsyncSession) -> Sequence[UserPolicy]:
    """Return all policies by name."""
    return (await db.scalars(select(UserPolicy).order_by(UserPolicy.name))).all()


async def hold_user(db: AsyncSession, user_id: UUID) -> Row[str | None] | None:
    """Return a user's domain; until the transaction ends no other one counts this user's sessions."""
    return (await db.execute(_HOLD_USER, {"user_id": user_id})).one_or_none()


async def of_user(db: AsyncSession, user_id: UUID) -> UserPolicy | None:
    """Return the policy of a user: the own one, else that of the domain."""
    return (await bounds_of(db, user_id))[0]


async def bounds_of(db: AsyncSession, user_id: UUID) -> tuple[UserPolicy | None, int]:
    """Return the policy of a user and how many of the user's sessions wait."""
    policy, waiting = (await db.execute(_bounds_of(), {"user_id": user_id})).one()
    return policy, waiting


@cache
def _bounds_of() -> Select[UserPolicy | None, int]:
    user_id = bindparam("user_id", type_=User.id.type)
    named = select(func.coalesce(User.policy, Domain.policy)).outerjoin(Domain, Domain.name == User.domain)
    waiting = select(func.count()).where(Session.user_id == user_id, Session.state == State.PENDING).scalar_subquery()
    query = select(UserPolicy, waiting).select_from(select(literal(1)).subquery())
    return query.outerjoin(UserPolicy, UserPolicy.name == named.where(User.id == user_id).scalar_subquery())


async def count_users(db: AsyncSession, name: str) -> int:
    """Return how many users have a policy."""
    return (await db.scalar(select(func.count()).select_from(User).where(User.policy == name))) or 0


async def held_by(db: AsyncSession, user_id: UUID) -> tuple[int, int, int | None, int | None]:
    """Return how many live sessions a user has, and their milli-GPU, milli-CPU and MiB together; None is no limit.

    A session whose share is to be raised counts with what it is to have, an elastic one with the most containers.
    """
    replicas = func.greatest(Session.replicas, Session.max_replicas)
    wanted = func.greatest(Session.gpu_milli, func.coalesce(Session.resize_milli, 0)) * replicas
    query = select(
        func.count(),
        func.sum(func.greatest(Session.held_milli, wanted)),
        func.sum(Session.cpu_milli * replicas),
        func.sum(Session.memory_mib * replicas),
        func.bool_or(Session.cpu_milli == 0),
        func.bool_or(Session.memory_mib == 0),
    ).where(Session.user_id == user_id, Session.state.not_in(ENDED))
    return _amounts((await db.execute(query)).one())


async def held_now_by(db: AsyncSession, user_id: UUID) -> tuple[int, int, int | None, int | None]:
    """Return what `held_by` does of the sessions that have their places: with the containers of now, and no others."""
    query = select(
        func.count(),
        func.sum(Session.held_milli),
        func.sum(Session.cpu_milli * Session.replicas),
        func.sum(Session.memory_mib * Session.replicas),
        func.bool_or(Session.cpu_milli == 0),
        func.bool_or(Session.memory_mib == 0),
    ).where(Session.user_id == user_id, HOLDS)
    return _amounts((await db.execute(query)).one())


async def waited_for_by(db: AsyncSession, user_id: UUID) -> tuple[int, int, int | None, int | None]:
    """Return what `held_by` counts beside `held_now_by`: sessions that wait, and containers that may yet come."""
    most, holds = func.greatest(Session.replicas, Session.max_replicas), Session.state.in_(HOLDING)
    replicas = case((holds, most - Session.replicas), else_=most)
    wanted = func.greatest(Session.gpu_milli, func.coalesce(Session.resize_milli, 0)) * most
    counted = func.greatest(Session.held_milli, wanted)
    query = select(
        func.count().filter(~holds),
        func.sum(case((holds, counted - Session.held_milli), else_=counted)),
        func.sum(Session.cpu_milli * replicas),
        func.sum(Session.memory_mib * replicas),
        func.bool_or(and_(Session.cpu_milli == 0, replicas > 0)),
        func.bool_or(and_(Session.memory_mib == 0, replicas > 0)),
    ).where(Session.user_id == user_id, Session.state.not_in(ENDED))
    return _amounts((await db.execute(query)).one())


def _amounts(row: Sequence[Any]) -> tuple[int, int, int | None, int | None]:
    sessions, gpu_milli, cpu_milli, memory_mib, any_cpu, any_memory = row
    cpu, memory = None if any_cpu else int(cpu_milli or 0), None if any_memory else int(memory_mib or 0)
    return sessions, int(gpu_milli or 0), cpu, memory


async def domains_of(db: AsyncSession, name: str) -> Sequence[str]:
    """Return the names of the domains that a policy binds."""
    return (await db.scalars(select(Domain.name).where(Domain.policy == name).order_by(Domain.name))).all()


def add(db: AsyncSession, policy: UserPolicy) -> None:
    """Add a policy to the transaction."""
    db.add(policy)


async def delete(db: AsyncSession, policy: UserPolicy) -> None:
    """Delete a policy."""
    await db.delete(policy)
