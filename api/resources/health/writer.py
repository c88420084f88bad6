"""Writer of checks: what a source says of a node, or of the site, becomes rows, changes and alerts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources.health import repository
from api.resources.health.bounds import MAX_TOLD, Hour
from api.settings import Settings
from api.tables.health import HealthAlert, HealthChange, HealthCheck, Source
from common.check_protocol import CheckReport
from common.checks import CheckState
from common.health import gravity

SAME = timedelta(seconds=5)
"""What an agent that was started again says of the same occurrence may be off by so much."""
TOLD = (CheckState.WARN, CheckState.FAIL)
"""States that people are told of, as of their end."""
MAX_WAITING = 1000
"""So many alerts wait at most; a site where all fails at once has been told by then."""
WEBHOOK, MAIL = "webhook", "mail"
GONE = "it is not reported any more"


def is_news(known: Iterable[HealthCheck], reports: Iterable[CheckReport]) -> bool:
    """Return whether what a source reports is anything else than the checks that are `known` of it."""
    return {
        (row.check_id, row.thing): (row.name, row.state, row.evidence, row.hint, row.repair, row.occurred_at)
        for row in known
    } != {
        (each.id, each.thing): (each.name, each.state, each.evidence, each.hint, each.repair, _aware(each.since))
        for each in reports
    }


class NodeRef(Protocol):
    """A node, as far as its checks go."""

    @property
    def id(self) -> UUID:
        """Its id."""

    @property
    def name(self) -> str:
        """Its name."""


@dataclass(frozen=True)
class Writer:
    """Writes the checks of a node, or of the site where there is none; a node without an agent has a name alone.

    An `hour` bounds how much is noted.
    """

    db: AsyncSession
    settings: Settings
    node: NodeRef | None
    node_name: str = ""
    hour: Hour | None = None

    @property
    def name(self) -> str:
        """The name of the node; empty for the site."""
        return self.node.name if self.node else self.node_name

    async def write(self, known: Sequence[HealthCheck], reports: Iterable[CheckReport], source: Source) -> None:
        """Bring the `known` checks of a source to what it reports; what it reports no more goes."""
        rows = {(row.check_id, row.thing): row for row in known}
        for report in reports:
            row = rows.pop((report.id, report.thing), None)
            if row is None:
                row = HealthCheck(check_id=report.id, thing=report.thing, source=source, since=now(), name=report.name)
                row.node_id, row.node_name = self.node.id if self.node else None, self.node_name
                repository.add(self.db, row)
            await self._follow(row, report)
        for row in rows.values():
            await self.change(row, CheckState.OK, GONE)
        await repository.remove(self.db, rows.values())

    async def _follow(self, row: HealthCheck, report: CheckReport) -> None:
        """Bring a check to what is said of it."""
        occurred_at = _aware(report.since)
        if report.state is not CheckState.OK and await self._is_settled(row, report.state, occurred_at):
            return
        row.name, row.hint, row.repair = report.name, report.hint, report.repair
        row.occurred_at, row.cleared_at = occurred_at, None
        await self.change(row, report.state, report.evidence)

    async def _is_settled(self, row: HealthCheck, state: CheckState, occurred_at: datetime | None) -> bool:
        """Return whether a check was cleared and nothing is new: the same occurrence, or where no occurrences are told,
        no worse than what was cleared.
        """
        if row.cleared_at is None:
            return False
        if occurred_at:
            # an earlier one is a new one, too, by a clock that was put back
            return abs(occurred_at - row.cleared_at) <= SAME
        cleared = await repository.state_before(self.db, self.name, row)
        return gravity(state) <= gravity(cleared or CheckState.FAIL)

    async def change(self, row: HealthCheck, state: CheckState, evidence: str) -> None:
        """Bring a check to a state, and note and tell it where it is another one."""
        before: CheckState | None = row.state
        row.evidence = evidence
        if before is state:
            return
        row.state, row.since = state, now()
        if state is CheckState.OK:
            row.hint = row.repair = ""
        if before is None and state is CheckState.OK:
            return
        change = HealthChange(node=self.name, check_id=row.check_id, thing=row.thing)
        change.at, change.before, change.after, change.evidence = row.since, before, state, evidence
        if self.hour is None:
            repository.add(self.db, change)
        elif not await self.hour.note(change):
            return
        is_news = state in TOLD or (state is CheckState.OK and before in TOLD)
        if is_news and not (row.acknowledged_until and row.acknowledged_until > now()):
            await self._tell(row, change)

    async def _tell(self, row: HealthCheck, change: HealthChange) -> None:
        """Put a change where it waits to be told."""
        channels = [WEBHOOK] if self.settings.alerts_webhook else []
        channels += [MAIL] if self.settings.alerts_mail_server else []
        if not channels or not await self._has_room():
            return
        told: dict[str, Any] = {
            "at": f"{change.at:%Y-%m-%dT%H:%M:%SZ}",
            "node": change.node,
            "check": change.check_id,
            "thing": change.thing,
            "name": row.name,
            "before": change.before,
            "state": change.after,
            "evidence": change.evidence,
            "hint": row.hint,
            "repair": row.repair,
        }
        for channel in channels:
            repository.add(self.db, HealthAlert(channel=channel, told=told))

    async def _has_room(self) -> bool:
        """Return whether one more alert may wait; a node cannot take the place of the others."""
        waiting, of_node = await repository.waiting(self.db, self.name)
        return waiting < MAX_WAITING and (not self.name or of_node < MAX_TOLD)


def _aware(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment and not moment.tzinfo else moment
