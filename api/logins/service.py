"""Rules of logins."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api import passwords
from api.database import now
from api.logins import repository
from api.logins.models import Login
from api.users.models import User


async def begin(db: AsyncSession, user: User, lifetime_s: int) -> str:
    """Begin a login and return the secret of its cookie; logins that have ended are forgotten on the way."""
    secret = passwords.new_secret()
    moment = now()
    await repository.remove_expired(db, moment)
    expires_at = moment + timedelta(seconds=lifetime_s)
    repository.add(db, Login(user_id=user.id, fingerprint=passwords.fingerprint(secret), expires_at=expires_at))
    return secret


async def user_of(db: AsyncSession, secret: str) -> User | None:
    """Return who a cookie stands for now."""
    return await repository.user_of(db, passwords.fingerprint(secret), now())


async def end(db: AsyncSession, secret: str) -> None:
    """End the login of a cookie."""
    await repository.remove(db, passwords.fingerprint(secret))


async def end_all(db: AsyncSession, user_id: UUID) -> None:
    """End all logins of a user."""
    await repository.remove_of_user(db, user_id)
