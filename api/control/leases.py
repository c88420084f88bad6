"""Leases: what the launcher has withdrawn, and what it lends to nobody.

Whoever administers the launcher takes places back at any time: cancelled, out of time, preempted, a node that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from uuid import UUID

import structlog
from sqlalchemy import select

from api.clock import Clock
from api.control.reconcilers import change
from api.control.reconcilers.change import SessionUpdate
from api.control.reconcilers.follow import WITHDRAWN, starts_again, withdrawn
from api.database import Database
from api.engine.launcher import Held, Launcher, Leases, NotLentError
from api.resources.nodes import lending
from api.resources.sessions import leases
from api.resources.sessions import service as sessions
from api.tables.nodes import Node, NodeState
from api.tables.sessions import Session, State
from common.errors import UnavailableError
from common.lease_protocol import Lease
from common.sentence import Sentence

log = structlog.get_logger()

EVERY_S = 1.0
AT_ONCE = 8
"""So many leases that were forgotten are asked for side by side: each may take as long as one is waited for."""


class LeaseKeeper:
    """Compares leases with sessions, again and again."""

    def __init__(self, database: Database, launcher: Launcher, clock: Clock) -> None:
        """Begin with a look at once."""
        self._database = database
        self._launcher = launcher
        self._clock = clock
        self._looked = float("-inf")
        self._said = ""

    @property
    def is_due(self) -> bool:
        """Whether it is time to look; once alone where the launcher takes nothing back."""
        return (self._launcher.is_watched or self._looked < 0) and self._clock.monotonic() - self._looked >= EVERY_S

    async def work(self) -> None:
        """End the sessions whose leases have ended, and give back what is lent to nobody.

        While nobody can say what is lent, all goes on as it is.
        """
        self._looked = self._clock.monotonic()
        if not self._launcher.is_watched:
            # the site may have had another launcher before
            async with self._database.transaction() as db:
                await lending.note(db, {}, {})
            return
        # A session that runs had its lease before this, and what is listed afterwards shows it.
        running, before = await self._held({State.RUNNING}), await self._taken()
        try:
            seen = await self._launcher.watch()
        except UnavailableError as error:
            self._say(str(error))
            return
        self._say("")
        await self._note(seen, before, await self._taken())
        lost = {lease: session_id for lease, session_id in running.items() if lease not in seen.lent}
        if lost:
            await self._take_back(lost, seen)
        # Whoever asks for a lease has been written as about to start before.
        there = {*seen.lent, *seen.left}
        if there and (unheld := there - (await self._held(None)).keys()):
            log.info("leases of no session", leases=len(unheld))
            await self._launcher.release(unheld)

    async def _held(self, states: Collection[State] | None) -> dict[Lease, UUID]:
        async with self._database.reading() as db:
            found = await leases.held(db, states)
        return {Lease(id_, attempt): id_ for id_, attempt in found.items()}

    async def _taken(self) -> dict[str, Held]:
        async with self._database.reading() as db:
            return await leases.taken(db)

    async def _note(self, seen: Leases, before: Mapping[str, Held], after: Mapping[str, Held]) -> None:
        """Write what nodes lend. What sessions took or gave back while it was listed is nobody else's."""
        foreign = {name: _beyond(held, before.get(name), after.get(name)) for name, held in seen.held.items()}
        withheld = seen.withheld(await self._ready_nodes())
        async with self._database.transaction() as db:
            await lending.note(db, withheld, foreign)

    async def _ready_nodes(self) -> list[str]:
        async with self._database.reading() as db:
            return [*await db.scalars(select(Node.name).where(Node.state == NodeState.READY))]

    async def _take_back(self, lost: Mapping[Lease, UUID], seen: Leases) -> None:
        async with self._database.reading() as db:
            found = await sessions.whole(db, set(lost.values()))
        forgotten: list[tuple[Lease, Session]] = []
        for lease, session_id in lost.items():
            session = found.get(session_id)
            if session is None or session.state is not State.RUNNING or session.attempt != lease.attempt:
                continue
            if why := seen.ended.get(lease):
                await self._end(session, why)
            else:
                forgotten.append((lease, session))
        for first in range(0, len(forgotten), AT_ONCE):
            some = forgotten[first : first + AT_ONCE]
            answers = await asyncio.gather(*(self._ask_again(*each) for each in some))
            for (_, session), answer in zip(some, answers, strict=True):
                if answer:
                    await self._end(session, answer)
            if None in answers:
                return

    async def _end(self, session: Session, why: str) -> None:
        async with self._database.transaction() as db:
            await change.apply(db, SessionUpdate(session, _withdrawn(session, why)))

    async def _ask_again(self, lease: Lease, session: Session) -> str | None:
        """Ask again for a lease that was forgotten; returns why it is not lent, or nothing, and None if nobody says."""
        log.warning("lease forgotten", session=session.name, session_id=str(session.id))
        try:
            await self._launcher.admit(lease, leases.leased_nodes(session))
        except NotLentError as error:
            return Sentence("Slurm has forgotten its job. {why}", why=error.problems[0].reason)
        except UnavailableError as error:
            self._say(str(error))
            return None
        return ""

    def _say(self, what: str) -> None:
        if what and what != self._said:
            log.warning("leases are not watched", reason=what)
        self._said = what


def _beyond(held: Held, *ours: Held | None) -> Held:
    known = [each for each in ours if each]
    return Held(
        max(0, held.cpu_milli - max((each.cpu_milli for each in known), default=0)),
        max(0, held.memory_mib - max((each.memory_mib for each in known), default=0)),
    )


def _withdrawn(session: Session, why: str) -> dict[str, object]:
    again = starts_again(session)
    final_state = State.PENDING if again else State.FAILED
    reason = withdrawn(why, again=again)
    return {"state": State.TERMINATING, "final_state": final_state, "reason": reason, "cause": WITHDRAWN}
