"""Automatic repairs: the leader orders the repair of a check that fails, where the site wants that for this check.

What did not help three times is ordered no more, and told, until the check was well or somebody has looked after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import structlog
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.policy import Action
from api.clock import Clock
from api.database import Database
from api.resources.audit import lines
from api.resources.audit import service as audit
from api.resources.health import service as health
from api.resources.health.bounds import ALARM
from api.resources.nodes import service as nodes
from api.resources.repairs import automatic, service
from api.resources.repairs.automatic import ALWAYS, Failing, Limits, Nodes, Past, name
from api.resources.repairs.schemas import RepairRequest
from api.settings import Settings
from api.tables.health import HealthCheck, Source
from api.tables.nodes import NodeMode
from common.check_protocol import CheckReport
from common.checks import Check, CheckState
from common.repair_protocol import NodeChecks
from common.repairs import OF_AGENTS, REPAIR_OF

log = structlog.get_logger()

EVERY_S = 5.0
"""So often it is looked whether one is to be ordered."""
Rows: TypeAlias = Sequence[Row[HealthCheck, str]]
"""Checks with the names of their nodes."""


class AutomaticRepair:
    """Looks again and again; where the site wants no repair by itself, that none helps is told no more."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        """Begin with a look after the first interval."""
        self._database = database
        self._settings = settings
        self._clock = clock
        self._looked = clock.monotonic()
        self._is_quiet = False
        looks = settings.health_good_looks + 1
        self._limits = Limits(
            settings.repair_max_unhealthy_percentage, timedelta(seconds=looks * settings.health_interval_s)
        )

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._clock.monotonic() - self._looked >= EVERY_S

    async def look(self) -> None:
        """Order the repair that is due, if any, in a transaction with its line in the audit log; tell where none is
        ordered any more.
        """
        self._looked = self._clock.monotonic()
        if self._is_quiet:
            async with self._database.reading() as db:
                if not await self._not_well(db):
                    return
        self._is_quiet = await self._order()

    async def _not_well(self, db: AsyncSession) -> Rows:
        return await health.not_well(db) if self._settings.controller and self._settings.repair_automatic else ()

    async def _order(self) -> bool:
        """Return whether there is nothing to repair, and nothing told of that."""
        async with self._database.transaction() as db:
            rows = await self._not_well(db)
            mended = await self._mended(db, rows)
            runs = await service.past(db, mended.values()) if mended else []
            await self._tell(db, mended.values(), runs)
            # who looked says whether a repair helps against what was seen
            failing = [each for row, each in mended.items() if row.state is CheckState.FAIL and _has_repair(row)]
            chosen = await self._choose(db, failing, rows, runs)
            if chosen is None:
                return not rows
            if audit.is_on(self._settings):
                await audit.begin(db, _entry(chosen, self._clock.now()))
            request = RepairRequest(limit=chosen.node)
            await service.order(db, chosen.repair, request, name(chosen.check), taken=self._settings.controller)
        log.info("repair ordered", repair=chosen.repair, check=chosen.check, node=chosen.node)
        return False

    async def _mended(self, db: AsyncSession, rows: Rows) -> dict[HealthCheck, Failing]:
        """Return the checks that are not well, or not seen, and are repaired by themselves."""
        wanted = [
            (row, node)
            for row, node in rows
            if row.check_id in self._settings.repair_automatic
            # somebody looks after it already
            and not (row.acknowledged_until and row.acknowledged_until > self._clock.now())
        ]
        well = await health.last_well(db, {node for _, node in wanted}, self._clock.now()) if wanted else {}

        def well_at(row: HealthCheck, node: str) -> datetime:
            own, alarm = well.get((node, row.check_id, row.thing)), well.get((node, ALARM, row.check_id))
            # that an alarm came, and so was none before, opens nothing
            known = (own and own.since, own and own.until, alarm and alarm.since)
            return max((moment for moment in known if moment), default=ALWAYS)

        return {
            row: Failing(row.check_id, row.repair, row.since, node or None, well_at(row, node)) for row, node in wanted
        }

    async def _tell(self, db: AsyncSession, mended: Iterable[Failing], runs: Sequence[Past]) -> None:
        """Tell of the checks whose repair was ordered as often as it may be, and does not help."""
        told: defaultdict[str, dict[str, Check]] = defaultdict(dict)
        for each in mended:
            if useless := automatic.gave_up(each, runs, self._limits, self._clock.now()):
                told[each.node or ""][each.check] = _alarm(each, useless)
        reports = [
            NodeChecks(node=node, checks=[CheckReport.of(check) for check in checks.values()])
            for node, checks in told.items()
        ]
        await health.record_repairs(db, self._settings, reports)

    async def _choose(
        self, db: AsyncSession, failing: Sequence[Failing], rows: Rows, runs: Sequence[Past]
    ) -> Failing | None:
        if not failing:
            return None
        every = await nodes.every(db)
        site = Nodes(
            len({node.name for node in every} | await health.nodes_without_agent(db)),
            frozenset(name for row, name in rows if name and row.state is CheckState.FAIL),
            frozenset(node.name for node in every if node.mode is not NodeMode.ACTIVE),
        )
        return automatic.choose(failing, runs, site, self._limits, self._clock.now())


def _has_repair(row: HealthCheck) -> bool:
    """Return whether a check names its own repair, and is one that its source looks at: no agent chooses another."""
    return row.repair == REPAIR_OF.get(row.check_id) and (row.source is not Source.AGENT or row.check_id in OF_AGENTS)


def _alarm(failing: Failing, useless: Sequence[Past]) -> Check:
    """Return what is told of a check that no repair helps."""
    last = max(useless, key=lambda run: run.ordered_at)
    said = f"{last.repair} was ordered {len(useless)} times for {failing.check}, and it is not well; no more is ordered"
    where = f" --node {failing.node}" if failing.node else ""
    hint = f"look at `penstock repair history`; `penstock health clear {failing.check}{where}` lets it be tried again"
    return Check(ALARM, "automatic repair helps", CheckState.FAIL, said, hint, failing.check)


def _entry(chosen: Failing, at: datetime) -> dict[str, Any]:
    """Return its line in the audit log."""
    return lines.by_itself(
        time=f"{at:%FT%T.%fZ}",
        user=name(chosen.check),
        action=Action.REPAIR_RUN.name.lower(),
        method="POST",
        object=f"repairs/{chosen.repair}/runs",
        status=201,
        reason=f"{chosen.check} fails since {chosen.since:%FT%TZ}",
    )
