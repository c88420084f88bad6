"""Rules of logins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import passwords
from api.clock import now
from api.resources.logins import repository
from api.tables.logins import Login
from api.tables.users import User
from common.errors import NotFoundError
from common.sentence import Sentence


async def begin(db: AsyncSession, user: User, lifetime_s: int, *, address: str, agent: str) -> str:
    """Begin a login and return the secret of its cookie; logins that have ended are forgotten on the way."""
    secret = passwords.new_secret()
    moment = now()
    await repository.remove_expired(db, moment)
    login = Login(
        user_id=user.id,
        fingerprint=passwords.fingerprint(secret),
        created_at=moment,
        used_at=moment,
        expires_at=moment + timedelta(seconds=lifetime_s),
        address=address[:64],
        agent=agent.replace("\0", "")[:256],
    )
    repository.add(db, login)
    return secret


async def of_user(db: AsyncSession, user_id: UUID) -> Sequence[Login]:
    """Return the logins of a user, oldest first."""
    return await repository.of_user(db, user_id, now())


async def end(db: AsyncSession, user_id: UUID, login_id: UUID) -> None:
    """End one login of a user; raises NotFoundError."""
    if not await repository.remove(db, user_id, login_id):
        raise NotFoundError(Sentence("you have no such login"), where="id", hint=Sentence("list your logins"))


async def end_all(db: AsyncSession, user_id: UUID, *, but: UUID | None = None) -> None:
    """End all logins of a user, but perhaps one."""
    await repository.remove_of_user(db, user_id, but)


async def forget_ended(db: AsyncSession, at: datetime) -> int:
    """Forget the logins that have ended; returns how many."""
    return await repository.remove_expired(db, at)
