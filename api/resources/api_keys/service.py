"""Rules of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import passwords
from api.clock import now
from api.resources.api_keys import repository
from api.resources.api_keys.schemas import ApiKeyRequest
from api.tables.api_keys import ApiKey
from common.errors import ConflictError, InputError, NotFoundError
from common.sentence import Moment, Sentence

PREFIX_LENGTH = 10


async def of_user(db: AsyncSession, user_id: UUID) -> Sequence[ApiKey]:
    """Return the keys of a user, oldest first."""
    return await repository.of_user(db, user_id)


async def create(
    db: AsyncSession,
    user_id: UUID,
    request: ApiKeyRequest,
    most: int,
    *,
    made_by: UUID | None = None,
    until: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret, which is not kept.

    `until` is the end of the key `made_by` which it is made; raises InputError where the new one would outlive that,
    ConflictError where the user has `most` already.
    """
    if await repository.count_for_new(db, user_id, now()) >= most:
        raise ConflictError(
            Sentence("you have {most} keys already", most=most),
            where="name",
            hint=Sentence("revoke those that nobody uses: `penstock apikey list`"),
        )
    ends_at = now() + timedelta(days=request.days) if request.days else until
    if until and ends_at and ends_at > until:
        raise InputError(
            Sentence("the key that makes it ends before, at {end}", end=Moment.at(until, seconds=True)),
            where="days",
            hint=Sentence("leave the days out, and it ends with that key; or sign in to make it"),
        )
    secret = passwords.new_secret("psk_")
    key = ApiKey(
        user_id=user_id,
        name=request.name,
        prefix=secret[:PREFIX_LENGTH],
        fingerprint=passwords.fingerprint(secret),
        scope=request.scope,
        made_by=made_by,
        expires_at=ends_at,
    )
    repository.add(db, key)
    await db.flush()
    return key, secret


async def revoke(db: AsyncSession, user_id: UUID, key_id: UUID) -> int:
    """Delete one of a user's keys with all that were made with it; returns how many. Raises NotFoundError."""
    keys = await repository.of_user(db, user_id)
    for key in keys:
        if key.id == key_id:
            await repository.delete(db, key)
            return len(_made_with(keys, key_id))
    raise NotFoundError(Sentence("there is no such key"), where="id", hint=Sentence("list the keys"))


async def revoke_all(db: AsyncSession, user_id: UUID) -> None:
    """Delete all keys of a user."""
    await repository.delete_of_user(db, user_id)


async def forget_ended(db: AsyncSession, before: datetime) -> int:
    """Forget the keys that ended before a moment; returns how many."""
    return await repository.delete_ended(db, before)


def _made_with(keys: Sequence[ApiKey], key_id: UUID) -> set[UUID]:
    """Return which keys a key has made, and those that these have made; who makes a key is older than it."""
    made: set[UUID] = set()
    for key in keys:
        if key.made_by == key_id or key.made_by in made:
            made.add(key.id)
    return made
