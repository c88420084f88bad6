"""Resizes: other shares for sessions that run.

What is wanted is written down (`ask`) and done by the leader, in steps that can be taken again after any interruption.
To raise a share its space is taken in the database first (`take_space`), then the agents are told; to lower one the
agents are told first, then the space is given back (`finish`). So no part of a GPU is ever two sessions' at once.
A change that is not done can be withdrawn: the share that the session had before is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.resources.accounting import service as accounting
from api.resources.projects import service as projects
from api.resources.sessions import repository, service
from api.resources.sessions.raises import FIELD, Room, still_kept
from api.resources.user_policies import service as user_policies
from api.resources.user_policies.service import Extra
from api.scheduler.claims import Claim
from api.settings import Launching, Settings
from api.tables.nodes import NodeState
from api.tables.sessions import Container, Session, State
from common.errors import ConflictError, InputError, PenstockError, Problem
from common.gpu.kinds import Enforcement
from common.gpu.share import MILLI, GpuShare, check_share, format_gpus
from common.protocol import GpuShares
from common.sentence import Sentence

log = structlog.get_logger()

RESIZE = "resize"
resizing = repository.resizing
IS_RESIZING = repository.IS_RESIZING


async def ask(
    db: AsyncSession, project: str, name: str, gpu_milli: int, caller: Identity, *, settings: Settings
) -> UUID:
    """Ask for another share of the GPUs that a running session has a part of; returns the session's id.

    Raises ConflictError where it does not run, has no part of a GPU, or has no space on it or in its quota, and
    InputError for a share that the granularity forbids or that needs other GPUs.
    """
    session = await service.get_for(db, project, name, caller, Action.SESSION_RESIZE)
    for _ in range(service.TRIES):
        await _check(db, session, gpu_milli, settings)
        if gpu_milli == (session.gpu_milli if session.resize_milli is None else session.resize_milli):
            return session.id
        before = session.gpu_milli if session.resize_milli is None else session.before_milli
        values = {"resize_milli": gpu_milli, "before_milli": before}
        if await service.change(db, session, **values):
            share = format_gpus(gpu_milli)
            log.info("audit", what="share asked for", session=name, project=project, by=caller.name, gpus=share)
            return session.id
        await db.refresh(session)
    raise ConflictError(
        Sentence("session {name} changes all the time", name=name), where="name", hint=Sentence("try again")
    )


async def offered(db: AsyncSession, session: Session, settings: Settings) -> list[int]:
    """Return the shares that a session could be asked to have: there is space, and the owner's policy allows them.

    None where its share stays.
    """
    if session.state is not State.RUNNING or _stays(session):
        return []
    if session.resize_milli is not None:
        return sorted({session.resize_milli, session.before_milli or session.resize_milli})
    whole = session.gpu_milli // MILLI * MILLI
    step = settings.granularity.step_milli
    most = session.gpu_milli if settings.engine is Launching.SLURM else whole + MILLI - 1
    shares = list(range(whole + step, most + 1, step))
    if most <= session.gpu_milli or _away(session) or not projects.is_active(session.project, now()):
        return [milli for milli in shares if milli <= session.gpu_milli]
    if session.user_id and (left := await user_policies.left_milli(db, session.user_id)) is not None:
        shares = [milli for milli in shares if session.replicas * (milli - session.gpu_milli) <= left]
    room = await Room.of(db, session)
    return [milli for milli in shares if milli <= session.gpu_milli or room.has(milli)]


async def take_space(db: AsyncSession, session: Session, claims: Sequence[Claim]) -> bool:
    """Take the space for a share that is to be raised; returns whether the session has it now.

    What the `claims` of the last decision keep for sessions that still wait is not free. A session for which there is
    no space any more keeps what it has, and says why. Only the leader does this, between decisions of the scheduler.
    Others give space away only to sessions that a lost node brings back, in the transaction in which the node is found
    again: a raise waits for its nodes, and needs no lock that would stand in the way of heartbeats.
    """
    wanted = session.resize_milli
    if wanted is None or wanted <= session.gpu_milli or _away(session):
        return False
    try:
        await _check_space(db, session, wanted, claims)
    except PenstockError as error:
        await _leave_as_it_is(db, session, error.problems[0])
        return False
    if not await service.change(db, session, gpu_milli=wanted, held_milli=session.replicas * wanted):
        return False
    await _reshare(db, session, wanted)
    return True


async def finish(db: AsyncSession, session: Session) -> bool:
    """Note that the agents hold a session to its new share; returns False where the session has changed meanwhile."""
    wanted = session.gpu_milli if session.resize_milli is None else session.resize_milli
    values = {"gpu_milli": wanted, "held_milli": session.replicas * wanted, "resize_milli": None, "before_milli": None}
    said = {"reason": "", "cause": ""} if session.cause == RESIZE and session.before_milli != wanted else {}
    if not await service.change(db, session, **values, **said):
        return False
    if wanted != session.gpu_milli:
        await _reshare(db, session, wanted)
    return True


async def refuse(db: AsyncSession, session: Session, reason: str) -> bool:
    """Note that an agent refuses the new share: what the session had before is wanted again, or kept as it is."""
    before = session.gpu_milli if session.before_milli is None else session.before_milli
    told = Sentence("its share stays {gpus} GPU: {why}", gpus=format_gpus(before), why=reason)
    said = {"reason": told, "cause": RESIZE}
    if session.resize_milli != before:
        return await service.change(db, session, resize_milli=before, **said)
    return await finish(db, session)


async def notice(db: AsyncSession, session: Session, seen: Iterable[tuple[Container, list[GpuShare]]]) -> bool:
    """Want the share of a running session again where its agents hold it to another one; returns whether they do."""
    if session.state is not State.RUNNING or session.resize_milli is not None:
        return False
    if not any(_differs(container, gpus) for container, gpus in seen):
        return False
    return await service.change(db, session, resize_milli=session.gpu_milli, before_milli=session.gpu_milli)


def shares(session: Session, container: Container) -> GpuShares:
    """Return the shares that a container of a session whose share changes shall have."""
    part = (session.gpu_milli if session.resize_milli is None else session.resize_milli) % MILLI
    return GpuShares(
        gpus=[
            GpuShare(uuid=share.uuid, index=share.index, milli=part if share.milli < MILLI else MILLI)
            for share in container.gpu_shares
        ]
    )


async def _check(db: AsyncSession, session: Session, wanted: int, settings: Settings) -> None:
    """Refuse what cannot be done now; the space is looked at once more when it is taken."""
    if session.state is not State.RUNNING:
        said = Sentence("session {name} is {state}", name=session.name, state=session.state.value)
        raise ConflictError(said, where="name", hint=Sentence("resize one that runs"))
    if session.resize_milli is not None and wanted == session.before_milli:
        return
    if stays := _stays(session):
        raise stays
    check_share(wanted, settings.granularity)
    whole = session.gpu_milli // MILLI
    if wanted // MILLI != whole or not wanted % MILLI:
        raise InputError(
            Sentence("{gpus} GPU would need other GPUs than those that the session has", gpus=format_gpus(wanted)),
            where=FIELD,
            hint=Sentence("stay between {least} and {most} GPU, or submit it again", least=whole, most=whole + 1),
        )
    if session.resize_milli not in (None, wanted):
        raise ConflictError(
            Sentence(
                "the share of {name} is being changed to {gpus} GPU",
                name=session.name,
                gpus=format_gpus(session.resize_milli or 0),
            ),
            where=FIELD,
            hint=Sentence(
                "try again when that is done, or ask for {gpus} GPU as before",
                gpus=format_gpus(session.before_milli or 0),
            ),
        )
    if away := _away(session):
        hint = Sentence("try again when the node is back")
        raise ConflictError(Sentence("{node} is lost", node=away[0]), where="name", hint=hint)
    if wanted > session.gpu_milli:
        if settings.engine is Launching.SLURM:
            raise ConflictError(
                Sentence(
                    "Slurm lends session {name} {gpus} GPU, and lends no more to it",
                    name=session.name,
                    gpus=format_gpus(session.gpu_milli),
                ),
                where=FIELD,
                hint=Sentence("delete it, and submit it again with the share that it needs"),
            )
        await _check_rights(db, session, wanted)
        await _check_space(db, session, wanted)


def _stays(session: Session) -> ConflictError | None:
    """Return why the share of a session that runs is never changed."""
    if session.max_replicas:
        return ConflictError(
            Sentence(
                "the number of containers of {name} changes by itself, and their share does not", name=session.name
            ),
            where="name",
            hint=Sentence("submit it again with the share that it needs"),
        )
    if not session.gpu_milli % MILLI:
        return ConflictError(
            Sentence("session {name} has no part of a GPU", name=session.name),
            where="name",
            hint=Sentence("delete it, and submit it again"),
        )
    # what its containers were started with: the GPUs of the node may have been cut anew since
    if any(container.enforcement == Enforcement.MIG for container in session.containers):
        return ConflictError(
            Sentence("session {name} runs on a slice of a GPU, which is not divided", name=session.name),
            where="name",
            hint=Sentence("submit it again with the share that it needs"),
        )
    return None


def _away(session: Session) -> list[str]:
    return [node.name for node in session.nodes if node.state is NodeState.LOST]


async def _check_rights(db: AsyncSession, session: Session, wanted: int) -> None:
    projects.check_active(session.project, now())
    if session.user_id:
        before = max(session.gpu_milli, session.resize_milli or 0)
        extra = Extra(sessions=0, gpu_milli=session.replicas * max(0, wanted - before))
        await user_policies.check(db, await user_policies.hold(db, session.user_id), extra)


async def _check_space(db: AsyncSession, session: Session, wanted: int, claims: Sequence[Claim] = ()) -> None:
    """Raise ConflictError where there is no space for that share beside what the claims keep."""
    (await Room.of(db, session)).check(wanted, await still_kept(db, claims))


async def _leave_as_it_is(db: AsyncSession, session: Session, problem: Problem) -> None:
    why = Sentence("{first}; {second}", first=problem.reason, second=problem.hint)
    said = Sentence("its share stays {gpus} GPU: {why}", gpus=format_gpus(session.gpu_milli), why=why)
    await service.change(db, session, resize_milli=None, before_milli=None, reason=said, cause=RESIZE)


async def _reshare(db: AsyncSession, session: Session, milli: int) -> None:
    """Write what the containers hold, and what that means for accounting."""
    await repository.set_shares(db, session.id, milli % MILLI)
    await accounting.reshare(db, session.id, now())


def _differs(container: Container, gpus: list[GpuShare]) -> bool:
    if container.enforcement == Enforcement.MIG:
        return False  # a slice is whole, whatever its agent calls it
    wanted = {share.uuid: share.milli for share in container.gpu_shares}
    found = {gpu.uuid: gpu.milli for gpu in gpus}
    return wanted.keys() == found.keys() and wanted != found
