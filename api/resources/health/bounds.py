"""Bounds of what the agent of one node can fill: its checks, the changes of an hour, and the alerts that wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources.health import repository
from api.tables.health import HealthChange
from common.check_protocol import CheckReport
from common.checks import CheckState

MAX_KEPT = 200
"""So many checks of a node are kept: twice those of one with eight GPUs."""
MAX_CHANGES = 200
"""So many changes that the agent of a node tells are noted in an hour, with the one that says that these are all."""
MAX_TOLD = 100
"""So many of the alerts that wait may be of one node."""
CHECKS, HISTORY = "checks", "history"
AGENT = "agent"
ALARM = "repair"
"""The check that tells of repairs that do not help."""
OTHERS = frozenset({AGENT, ALARM, CHECKS})
"""Checks of a node that its agent does not make."""


def kept(checks: Iterable[CheckReport]) -> list[CheckReport]:
    """Return the checks of an agent that are kept, each once, with one that counts the others."""
    found = list({(check.id, check.thing): check for check in checks if check.id not in OTHERS}.values())
    left_out = len(found) - MAX_KEPT
    return [*found[:MAX_KEPT], _left_out(left_out)] if left_out > 0 else found


def _left_out(number: int) -> CheckReport:
    return CheckReport(
        id=CHECKS,
        name="all checks are kept",
        state=CheckState.WARN,
        evidence=f"{number} more were reported and not kept",
        hint="no node has so many: look what runs there as its agent, or revoke its certificate",
    )


@dataclass
class Hour:
    """What may still be noted of a node in this hour; it is looked up at the first change."""

    db: AsyncSession
    node: str
    _left: int | None = None

    async def note(self, change: HealthChange) -> bool:
        """Note a change, or in the last place that these are all; returns whether it was noted."""
        began = now().replace(minute=0, second=0, microsecond=0)
        if self._left is None:
            self._left = MAX_CHANGES - await repository.noted(self.db, self.node, began, besides=AGENT)
        self._left -= 1
        if self._left > 0:
            repository.add(self.db, change)
        elif self._left == 0:
            until = f"{began + timedelta(hours=1):%H:%M} UTC"
            said = f"{MAX_CHANGES} changes within this hour: others are not noted until {until}"
            last = HealthChange(node=self.node, check_id=CHECKS, thing=HISTORY, after=CheckState.WARN, evidence=said)
            repository.add(self.db, last)
        return self._left > 0
