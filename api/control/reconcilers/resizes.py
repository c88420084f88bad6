"""The agents' part of a change of shares: they are told until they have taken it or refused it."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from api.control.reconcilers.failures import Failures, all_of
from api.database import Begin, Database
from api.engine.base import Engine, UnreachableError
from api.resources.sessions import resizing
from api.resources.sessions.relay import agent_of
from api.scheduler.claims import Claim
from api.tables.sessions import Container, Session
from common.errors import NotFoundError, PenstockError
from common.gpu.share import format_gpus
from common.sentence import Sentence

log = structlog.get_logger()


async def take_space(database: Database, kept: Sequence[Claim], failures: Failures, begin: Begin | None = None) -> None:
    """Take the space for shares that are to be raised; only between decisions of the scheduler, which knows it then.

    `kept` is what the last decision keeps for sessions that wait; `begin` gives the transactions of a
    leader, in which alone space is given away.
    """
    async with database.reading() as db:
        if not any((session.resize_milli or 0) > session.gpu_milli for session in await resizing.resizing(db)):
            return
    async with (begin or database.transaction)() as db:
        for session in await resizing.resizing(db):
            async with failures.alone(db, session, Sentence("to raise its share")):
                if await resizing.take_space(db, session, kept):
                    log.info("share raised", session=session.name, project=session.project.name)


async def tell(database: Database, engine: Engine, session: Session) -> bool:
    """Tell the agents the share that is wanted of a session; returns whether that is settled."""
    if session.resize_milli is None or session.resize_milli > session.gpu_milli:
        return True
    errors = await all_of(_tell_one(engine, session, container) for container in session.containers)
    refusals = [error for error in errors if error and not isinstance(error, UnreachableError | NotFoundError)]
    if any(errors) and not refusals:
        return False
    async with database.transaction() as db:
        if refusals:
            log.warning("share refused", session=session.name, reason=str(refusals[0]))
            return await resizing.refuse(db, session, refusals[0].problems[0].reason)
        settled = await resizing.finish(db, session)
    if settled:
        share = format_gpus(session.resize_milli)
        log.info("share changed", session=session.name, project=session.project.name, gpus=share)
    return settled


async def _tell_one(engine: Engine, session: Session, container: Container) -> PenstockError | None:
    shares = resizing.shares(session, container)
    try:
        await engine.resize(agent_of(container.node), session.container_id(container.rank), shares)
    except PenstockError as error:
        return error
    return None
