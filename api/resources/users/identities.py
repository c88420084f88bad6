"""Identities of users whom no request names: what they may do as it stands now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.database import among
from api.tables.projects import Membership, ProjectRole
from api.tables.users import User


async def of_users(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, Identity]:
    """Return the identities of users by their ids, without those who are disabled or gone."""
    query = select(User.id, User.name, User.role, User.domain, Membership.project_id, Membership.role)
    query = query.outerjoin(Membership, Membership.user_id == User.id)
    rows = (await db.execute(query.where(among(User.id, ids), User.disabled.is_(False)))).all()
    projects: defaultdict[UUID, dict[UUID, ProjectRole]] = defaultdict(dict)
    for user_id, *_, project_id, role in rows:
        if project_id is not None:
            projects[user_id][project_id] = role
    return {
        user_id: Identity(
            user_id,
            name,
            role,
            domain,
            manages=frozenset(id_ for id_, held in projects[user_id].items() if held is ProjectRole.MANAGER),
            member_of=frozenset(projects[user_id]),
        )
        for user_id, name, role, domain, *_ in rows
    }
