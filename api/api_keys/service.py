"""Rules of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api import passwords
from api.api_keys import repository
from api.api_keys.models import ApiKey
from api.users.models import User
from reservoir.errors import NotFoundError

PREFIX_LENGTH = 10


async def of_user(db: AsyncSession, user_id: UUID) -> Sequence[ApiKey]:
    """Return the keys of a user, oldest first."""
    return await repository.of_user(db, user_id)


async def create(db: AsyncSession, user_id: UUID, name: str) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret, which is not kept."""
    secret = passwords.new_secret("psk_")
    key = ApiKey(user_id=user_id, name=name, prefix=secret[:PREFIX_LENGTH], fingerprint=passwords.fingerprint(secret))
    repository.add(db, key)
    await db.flush()
    return key, secret


async def delete(db: AsyncSession, user_id: UUID, key_id: UUID) -> None:
    """Delete one of a user's keys; raises NotFoundError."""
    for key in await repository.of_user(db, user_id):
        if key.id == key_id:
            await repository.delete(db, key)
            return
    raise NotFoundError("you have no such key", where="id", cure="list your keys")


async def user_of(db: AsyncSession, secret: str) -> User | None:
    """Return who a key stands for."""
    return await repository.user_of(db, passwords.fingerprint(secret))
