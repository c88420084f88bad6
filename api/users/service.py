"""Rules of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api import passwords
from api.policy import Role
from api.users import repository
from api.users.models import User
from api.users.schemas import UserRequest
from reservoir.errors import ConflictError, InputError, NotFoundError, Problem, UnauthenticatedError


async def every(db: AsyncSession) -> Sequence[User]:
    """Return all users by name."""
    return await repository.every(db)


async def get(db: AsyncSession, name: str) -> User:
    """Return one user; raises NotFoundError."""
    user = await repository.by_name(db, name)
    if user is None:
        raise NotFoundError(f"there is no user {name}", where="name", cure="list the users")
    return user


async def find(db: AsyncSession, name: str) -> User | None:
    """Return one user, or None."""
    return await repository.by_name(db, name)


async def members(db: AsyncSession, names: Iterable[str], field: str = "members") -> list[User]:
    """Return users by their names; raises one InputError that lists every name that nobody has, for a field."""
    wanted = sorted(set(names))
    found = {user.name: user for user in await repository.by_names(db, wanted)}
    problems = [
        Problem(field, f"there is no user {name}", "create the user first") for name in wanted if name not in found
    ]
    if problems:
        raise InputError.of(problems)
    return [found[name] for name in wanted]


async def create(db: AsyncSession, request: UserRequest) -> User:
    """Create a user; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(f"there is a user {request.name} already", where="name", cure="choose another name")
    user = User(name=request.name, role=request.role, password_hash=await passwords.make_hash(request.password))
    repository.add(db, user)
    await db.flush()
    return user


async def delete(db: AsyncSession, name: str, caller_name: str) -> User:
    """Delete a user; raises ConflictError for oneself and for the last administrator."""
    user = await get(db, name)
    if user.name == caller_name:
        raise ConflictError("you cannot delete yourself", where="name", cure="ask another administrator")
    if user.role is Role.ADMIN and await repository.count_admins(db) == 1:
        raise ConflictError(f"{name} is the last administrator", where="name", cure="make another administrator first")
    await repository.delete(db, user)
    return user


async def set_password(db: AsyncSession, name: str, password: str) -> User:
    """Give a user a new password."""
    user = await get(db, name)
    user.password_hash = await passwords.make_hash(password)
    return user


async def check_password(user: User | None, password: str) -> User:
    """Return the user if the password is right; raises UnauthenticatedError that does not say whether there is one."""
    if not await passwords.matches(user.password_hash if user else None, password) or user is None:
        raise UnauthenticatedError(
            "name or password is wrong", where="password", cure="try again, or ask an administrator for a new password"
        )
    return user
