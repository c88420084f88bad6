"""Rules of users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import passwords
from api.auth.directory import Person
from api.auth.identity import Identity
from api.auth.policy import Action, UserRole
from api.resources.users import repository
from api.resources.users.schemas import UserChange, UserRequest
from api.tables.users import User, UserSource
from common.errors import ConflictError, ForbiddenError, InputError, NotFoundError, Problem, UnauthenticatedError
from common.sentence import Sentence

OWN_STAYS = ("role", "disabled", "domain")
"""What nobody changes of themselves: a slip would lock them out."""

OF_THE_SITE = {"domain": Action.USER_MOVE, "policy": Action.USER_LIMIT, "role": Action.USER_AUDIT}
"""What a right of its own is needed to give somebody; of roles, that of an auditor."""

log = structlog.get_logger()

of_directory = repository.of_directory


async def visible(db: AsyncSession, caller: Identity) -> Sequence[User]:
    """Return the users that the caller may see, by name."""
    return await repository.within(db, caller.reach(Action.USER_READ))


async def get(db: AsyncSession, name: str) -> User:
    """Return one user; raises NotFoundError."""
    user = await repository.by_name(db, name)
    if user is None:
        raise _unknown(name)
    return user


async def get_for(db: AsyncSession, name: str, caller: Identity, action: Action, *, lock: bool = False) -> User:
    """Return a user that the caller may do this to; raises NotFoundError also for one that the caller may not see.

    `lock` is for who deletes or moves the user: no session is submitted any more until the transaction ends.
    """
    user = await repository.by_name(db, name, lock=lock)
    if user is None or not caller.may(Action.USER_READ, domain=user.domain):
        raise _unknown(name)
    caller.check(action, domain=user.domain)
    return user


async def find(db: AsyncSession, name: str) -> User | None:
    """Return one user, or None."""
    return await repository.by_name(db, name)


async def members(
    db: AsyncSession,
    names: Iterable[str],
    field: str = "members",
    *,
    domain: str | None = None,
    any_domain: bool = True,
) -> list[User]:
    """Return users by the names in a field; raises one InputError that lists every name that nobody has.

    With a `domain` only its users are, and without `any_domain` only those that have none: nobody learns by the answer
    who there is elsewhere.
    """
    wanted = sorted(set(names))
    every = domain is None and any_domain
    found = {user.name: user for user in await repository.by_names(db, wanted) if every or user.domain == domain}
    hint = Sentence("create the user first")
    if not (domain or any_domain):
        hint = Sentence("ask an administrator of the site")

    def reason(name: str) -> Sentence:
        if domain:
            return Sentence("there is no user {name} of the domain {domain}", name=name, domain=domain)
        if any_domain:
            return Sentence("there is no user {name}", name=name)
        return Sentence("there is no user {name} that you may add", name=name)

    problems = [Problem(field, reason(name), hint) for name in wanted if name not in found]
    if problems:
        raise InputError.of(problems)
    return [found[name] for name in wanted]


async def create(db: AsyncSession, request: UserRequest, caller: Identity | None = None) -> User:
    """Create a user; without a caller the site itself does so. Raises ConflictError where the name is taken."""
    domain = request.domain or (caller.domain if caller else None)
    if caller:
        caller.check(Action.USER_CREATE, domain=domain)
        _check_given(caller, request.model_dump(include={"role", "policy"}, exclude_defaults=True))
    await _check_references(db, {"domain": domain, "policy": request.policy})
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a user {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    fields = request.model_dump(exclude={"password", "domain"})
    user = User(**fields, domain=domain, password_hash=await passwords.make_hash(request.password))
    repository.add(db, user)
    await db.flush()
    _audit("user created", user, caller, role=user.role.value)
    return user


async def of_person(db: AsyncSession, name: str, person: Person) -> User:
    """Return the account of a person whom the directory has let in by a name: the one of the entry, or a new one.

    An account that belongs to no entry yet belongs to this one from now on. Raises ForbiddenError where the account of
    that name is another person's.
    """
    user = await repository.by_directory_id(db, person.entry_id) or await repository.by_name(db, name)
    if user is None:
        user = User(name=name, role=person.role or UserRole.MEMBER, source=UserSource.LDAP)
        user.directory_id, user.role_source = person.entry_id, UserSource.LDAP
        repository.add(db, user)
        await db.flush()
        _audit("user created", user, None, role=user.role.value, entry=person.entry_id)
        return user
    if user.source is not UserSource.LDAP or user.directory_id not in (None, person.entry_id):
        _audit("refused: another entry of the directory", user, None, entry=person.entry_id)
        raise ForbiddenError(
            Sentence("the account {name} belongs to another entry of the directory", name=name),
            where="name",
            hint=Sentence("if it is yours, an administrator gives it to you: penstock user unbind {name}", name=name),
        )
    if user.directory_id is None:
        user.directory_id = person.entry_id
        _audit("user bound", user, None, entry=person.entry_id)
    await _follow_directory(db, user, person.role)
    return user


async def bind(db: AsyncSession, user: User, entry_id: str) -> None:
    """Give an account that belongs to no entry of the directory yet to one that has none."""
    if await repository.by_directory_id(db, entry_id) is None:
        open_ = await repository.of_entry(db, user.id, None)
        if open_:
            open_.directory_id = entry_id
            _audit("user bound", open_, None, entry=entry_id)


async def hold_departed(db: AsyncSession, user: User) -> bool:
    """Return whether an account still belongs to the entry which the directory has no more, or has disabled."""
    held = await repository.of_entry(db, user.id, user.directory_id)
    if held:
        _audit("user left the directory: keys and logins end", held, None, entry=held.directory_id or "")
    return held is not None


async def _follow_directory(db: AsyncSession, user: User, role: UserRole | None) -> None:
    """Give a user the role that the directory's groups say, if they do; the last administrator stays one."""
    if role in (None, user.role) or user.role_source is not UserSource.LDAP:
        return
    if role is not UserRole.ADMIN and await _is_last_admin(db, user):
        return
    user.role = role
    _audit("user changed", user, None, role=role.value)


async def change(db: AsyncSession, user: User, request: UserChange, caller: Identity) -> User:
    """Change a user; raises ConflictError where nobody could administer the site afterwards.

    Whoever calls this ends the user's logins and keys where the password changes, or whose the account is.
    """
    given: dict[str, Any] = request.model_dump(exclude_unset=True)
    password = given.pop("password", None)
    if "role" in given:
        given.setdefault("role_source", UserSource.LOCAL)
    _check_source(user, given)
    changed = {name for name, value in given.items() if getattr(user, name) != value}
    if user.id == caller.id and (slips := changed.intersection(OWN_STAYS)):
        raise ConflictError(
            Sentence("you cannot change this of yourself"), where=min(slips), hint=Sentence("ask another administrator")
        )
    _check_given(caller, {name: given[name] for name in changed})
    await _check_references(db, {name: given[name] for name in ("domain", "policy") if name in changed})
    stays = given.get("role", user.role) is UserRole.ADMIN and not given.get("disabled") and not given.get("domain")
    if not stays and await _is_last_admin(db, user):
        raise _last(user)
    for name in changed:
        setattr(user, name, given[name])
    if password is not None:
        await set_password(user, password, caller)
    if changed:
        _audit("user changed", user, caller, fields=",".join(sorted(changed)))
    return user


async def delete(db: AsyncSession, user: User, caller: Identity) -> None:
    """Delete a user; raises ConflictError for oneself and for the last administrator."""
    if user.id == caller.id:
        raise ConflictError(
            Sentence("you cannot delete yourself"), where="name", hint=Sentence("ask another administrator")
        )
    if await _is_last_admin(db, user):
        raise _last(user)
    await repository.delete(db, user)
    _audit("user deleted", user, caller)


async def set_password(user: User, password: str, caller: Identity | None) -> None:
    """Give a user a new password; raises ConflictError for one whose password the directory knows."""
    if user.source is UserSource.LDAP:
        raise ConflictError(
            Sentence("the password of {name} is in the directory", name=user.name),
            where="password",
            hint=Sentence("change it in the directory"),
        )
    user.password_hash = await passwords.make_hash(password)
    _audit("password changed", user, caller)


async def replace_given_password(user: User, password: str, caller: Identity) -> None:
    """Let a user replace the password that an administrator has made; any other is the administrators' to change."""
    if not user.must_change_password:
        raise ForbiddenError(
            Sentence("only an administrator changes passwords"), where="password", hint=Sentence("ask an administrator")
        )
    if await passwords.matches(user.password_hash, password):
        raise InputError(
            Sentence("this is the password that you were given"), where="password", hint=Sentence("choose another one")
        )
    await set_password(user, password, caller)
    user.must_change_password = False


async def check_password(user: User | None, password: str) -> User:
    """Return the user if the password is right; raises UnauthenticatedError that does not say whether there is one.

    Raises ForbiddenError for a disabled user, who learns this only by the right password.
    """
    if not await passwords.matches(user.password_hash if user else None, password) or user is None:
        raise wrong_login()
    return check_enabled(user)


def check_enabled(user: User) -> User:
    """Return the user; raises ForbiddenError for a disabled one."""
    if user.disabled:
        raise ForbiddenError(
            Sentence("the user {name} is disabled", name=user.name), where="name", hint=Sentence("ask an administrator")
        )
    return user


def wrong_login() -> UnauthenticatedError:
    """Return the error of every login that is not right, whatever is wrong with it."""
    return UnauthenticatedError(
        Sentence("name or password is wrong"),
        where="password",
        hint=Sentence("try again, or ask an administrator for a new password"),
    )


def _check_source(user: User, given: Mapping[str, Any]) -> None:
    """Refuse for somebody whom only this site knows what is the directory's."""
    by_directory = "role_source" if given.get("role_source") is UserSource.LDAP else "directory_id"
    if by_directory in given and user.source is not UserSource.LDAP:
        raise InputError(
            Sentence("{name} is not a user of the directory", name=user.name),
            where=by_directory,
            hint=Sentence("leave it out"),
        )


def _check_given(caller: Identity, given: Mapping[str, Any]) -> None:
    """Refuse what only the site's administrators give: it reaches beyond a domain, or limits it."""
    for field, action in OF_THE_SITE.items():
        if field in given and (field != "role" or given[field] is UserRole.AUDITOR):
            caller.check(action, where=field)


async def _is_last_admin(db: AsyncSession, user: User) -> bool:
    """Return whether the site has no other administrator; the answer holds until the transaction ends."""
    return await repository.lock_admins(db) == {user.id}


async def _check_references(db: AsyncSession, given: dict[str, str | None]) -> None:
    domain, policy = given.get("domain"), given.get("policy")
    if domain and not await repository.is_domain(db, domain):
        raise InputError(
            Sentence("there is no domain {name}", name=domain),
            where="domain",
            hint=Sentence("create the domain first"),
        )
    if policy and not await repository.is_policy(db, policy):
        raise InputError(
            Sentence("there is no user policy {name}", name=policy),
            where="policy",
            hint=Sentence("create the policy first"),
        )


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(Sentence("there is no user {name}", name=name), where="name", hint=Sentence("list the users"))


def _last(user: User) -> ConflictError:
    return ConflictError(
        Sentence("{name} is the last administrator", name=user.name),
        where="name",
        hint=Sentence("make another one first"),
    )


def _audit(what: str, user: User, caller: Identity | None, **more: str) -> None:
    log.info("audit", what=what, user=user.name, by=caller.name if caller else "the site", **more)
