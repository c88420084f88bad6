"""Rules of user policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.user_policies import repository
from api.resources.user_policies.schemas import PolicyChange, PolicyRequest
from api.tables.user_policies import UserPolicy
from common.errors import ConflictError, NotFoundError, Problem, UnauthenticatedError
from common.gpu.share import format_gpus
from common.sentence import Sentence, Several


@dataclass(frozen=True)
class Extra:
    """What sessions to submit have together: milli-GPU, thousandths of a core, MiB; all containers counted.

    None is what they have without limit: all of their nodes.
    """

    sessions: int = 1
    gpu_milli: int = 0
    cpu_milli: int | None = 0
    memory_mib: int | None = 0


AMOUNTS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("name", lambda sessions: Sentence("{amount} live sessions", amount=sessions)),
    ("gpu_milli", lambda milli: Sentence("{amount} GPUs", amount=format_gpus(milli))),
    ("cpu_milli", lambda milli: Sentence("{amount} CPU cores", amount=f"{milli / 1000:g}")),
    ("memory_mib", lambda mib: Sentence("{amount} MiB of memory", amount=mib)),
)
"""What a policy limits: the field of a request that says how much, and how its amounts are written."""


@dataclass(frozen=True)
class HeldUser:
    """A user whose sessions nobody else counts until the transaction ends, with the domain and the policy of now.

    `waiting` is how many of them wait.
    """

    id: UUID
    domain: str | None
    policy: UserPolicy | None
    waiting: int


async def hold(db: AsyncSession, user_id: UUID) -> HeldUser:
    """Hold a user in the transaction that submits or resizes: two at once cannot both take what is left.

    A user who is deleted at the same time either has the sessions already or gets none. Raises UnauthenticatedError
    where the user is gone.
    """
    user = await repository.hold_user(db, user_id)
    if user is None:
        raise UnauthenticatedError(Sentence("the user has been deleted"), hint=Sentence("sign in as another user"))
    return HeldUser(user_id, user.domain, *await repository.bounds_of(db, user_id))


async def check(db: AsyncSession, user: HeldUser, extra: Extra) -> None:
    """Raise ConflictError where a user's live sessions and `extra` have more than the user's policy allows."""
    policy = user.policy
    if policy is None:
        return
    held = await repository.held_by(db, user.id)
    limits = (policy.max_sessions, policy.max_gpu_milli, policy.max_cpu_milli, policy.max_memory_mib)
    problems = []
    for (where, text), limit, now_held, more in zip(AMOUNTS, limits, held, astuple(extra), strict=True):
        if limit is None or more == 0:
            continue
        if found := _excess(where, text, limit=limit, held=now_held, more=more):
            reason, hint = found
            told = {"name": policy.name, "most": text(limit), "reason": reason}
            problems.append(Problem(where, Sentence("the policy {name} allows you {most}, and {reason}", **told), hint))
    if problems:
        raise ConflictError.of(problems)


def check_waiting(user: HeldUser, more: int, most: int) -> None:
    """Raise ConflictError where more sessions of a user would wait than the site lets anybody have."""
    if (waiting := user.waiting + more) > most:
        raise ConflictError(
            Sentence("{waiting} of your sessions would wait, and at most {most} may", waiting=waiting, most=most),
            where="name",
            hint=Sentence("submit these when others have started, or delete some that wait"),
        )


def _excess(
    where: str, text: Callable[[int], str], *, limit: int, held: int | None, more: int | None
) -> tuple[str, str] | None:
    """Return why it is too much where sessions have `held` and others are to have `more`, and what to do about it."""
    if more is None:
        return (
            Sentence("without {where} there is no limit", where=where),
            Sentence("write {where}, or name a preset that does", where=where),
        )
    if held is None:
        return (
            Sentence("one of your live sessions has no limit"),
            Sentence("end it, or ask an administrator for another policy"),
        )
    if held + more > limit:
        return (
            Sentence("this would make {amount}", amount=text(held + more)),
            Sentence("end a session, or ask an administrator for another policy"),
        )
    return None


async def left_milli(db: AsyncSession, user_id: UUID) -> int | None:
    """Return how many milli-GPU more a user's live sessions may have; None where the policy does not say."""
    policy = await repository.of_user(db, user_id)
    if policy is None or policy.max_gpu_milli is None:
        return None
    return max(0, policy.max_gpu_milli - (await repository.held_by(db, user_id))[1])


@dataclass(frozen=True)
class Limit:
    """What a user's sessions hold of one kind, what waits, and the most that both together may; None is no limit.

    The containers that elastic sessions may still get wait, too.
    """

    where: str
    held: int | None
    waiting: int | None
    most: int | None


async def limits(db: AsyncSession, user_id: UUID) -> list[Limit]:
    """Return what a user's live sessions have together and may have, in the order of `AMOUNTS`."""
    policy, held = await repository.of_user(db, user_id), await repository.held_now_by(db, user_id)
    waiting = await repository.waited_for_by(db, user_id)
    most = (policy.max_sessions, policy.max_gpu_milli, policy.max_cpu_milli, policy.max_memory_mib) if policy else ()
    return [
        Limit(where, has, waits, may)
        for (where, _), has, waits, may in zip(AMOUNTS, held, waiting, most or (None,) * len(AMOUNTS), strict=True)
    ]


async def every(db: AsyncSession) -> Sequence[UserPolicy]:
    """Return all policies by name."""
    return await repository.every(db)


async def get(db: AsyncSession, name: str) -> UserPolicy:
    """Return one policy; raises NotFoundError."""
    policy = await repository.by_name(db, name)
    if policy is None:
        raise NotFoundError(
            Sentence("there is no user policy {name}", name=name), where="name", hint=Sentence("list the policies")
        )
    return policy


async def create(db: AsyncSession, request: PolicyRequest) -> UserPolicy:
    """Create a policy; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a user policy {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    policy = UserPolicy(**request.model_dump())
    repository.add(db, policy)
    await db.flush()
    return policy


async def change(db: AsyncSession, name: str, request: PolicyChange) -> UserPolicy:
    """Change a policy; sessions that run go on."""
    policy = await get(db, name)
    for field, value in request.model_dump(exclude_unset=True).items():
        setattr(policy, field, value)
    return policy


async def delete(db: AsyncSession, name: str) -> None:
    """Delete a policy that no user and no domain has; raises ConflictError."""
    policy = await get(db, name)
    if count := await repository.count_users(db, name):
        raise ConflictError(
            Sentence.counted(
                "{count} user has the policy {name}", "{count} users have the policy {name}", count, name=name
            ),
            where="name",
            hint=Sentence("give them another one first"),
        )
    if domains := await repository.domains_of(db, name):
        raise ConflictError(
            Sentence("{name} binds the domains {domains}", name=name, domains=Several(domains)),
            where="name",
            hint=Sentence("give them another one"),
        )
    await repository.delete(db, policy)
