"""Queries of apps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload, lazyload

from api.database import among
from api.tables.logins import AppLogin
from api.tables.sessions import Service, Session
from common.app_addresses import AppName


async def find(db: AsyncSession, path: str, bases: Collection[str]) -> Sequence[tuple[Service, Session]]:
    """Return the services that stand at a path, or at one of several prefixes of their own, with their sessions."""
    query = select(Service, Session).join(Session, Session.id == Service.session_id)
    found = await db.execute(query.where(or_(Service.path == path, Service.base_path.in_(bases))))
    return [(service, session) for service, session in found.unique().all()]


async def find_named(db: AsyncSession, session_id: UUID, port: int) -> tuple[Service, Session] | None:
    """Return the service of a session at a port, with the session."""
    query = select(Service, Session).join(Session, Session.id == Service.session_id)
    query = query.where(Service.session_id == session_id, Service.port == port)
    found = (await db.execute(query)).unique().first()
    return (found[0], found[1]) if found else None


def add(db: AsyncSession, login: AppLogin) -> None:
    """Add a ticket to the transaction."""
    db.add(login)


async def remove_ended(db: AsyncSession, at: datetime) -> None:
    """Forget the tickets that nobody has used in time, and the logins in whose place others came."""
    await db.execute(delete(AppLogin).where(AppLogin.expires_at <= at))


async def use_ticket(
    db: AsyncSession, ticket: str, state: str, app: AppName, *, at: datetime, cookie: str, until: datetime
) -> bool:
    """Make a login of a ticket, once; returns whether it counted. All of them are known by their fingerprints.

    A browser has one cookie of a name: those that it had before end with `until`, for what it asked by them already.
    """
    query = update(AppLogin).where(AppLogin.state == state, *_counts(ticket, app, at))
    used = query.values(ticket=None, state=None, expires_at=None, fingerprint=cookie)
    row = (await db.execute(used.returning(AppLogin.id, AppLogin.login_id))).one_or_none()
    if row is None:
        return False
    former = update(AppLogin).where(AppLogin.login_id == row.login_id, AppLogin.id != row.id)
    former = former.where(AppLogin.session_id == app.session_id, AppLogin.port == app.port)
    former = former.where(AppLogin.fingerprint.is_not(None), AppLogin.expires_at.is_(None))
    await db.execute(former.values(expires_at=until))
    return True


async def counts(db: AsyncSession, ticket: str, app: AppName, at: datetime) -> bool:
    """Return whether a ticket, by its fingerprint, still counts for an app in some browser."""
    return (await db.scalar(select(AppLogin.id).where(*_counts(ticket, app, at)))) is not None


def _counts(ticket: str, app: AppName, at: datetime) -> tuple[ColumnElement[bool], ...]:
    of_app = AppLogin.session_id == app.session_id, AppLogin.port == app.port
    return AppLogin.ticket == ticket, AppLogin.expires_at > at, *of_app


async def of_ids(db: AsyncSession, ids: Collection[UUID]) -> Sequence[Session]:
    """Return sessions with their projects and nothing else."""
    query = select(Session).where(among(Session.id, ids)).options(lazyload("*"), joinedload(Session.project))
    return (await db.scalars(query)).all()
