"""Repair of a control API that does not answer: it can order none, so the controller begins it.

The site wants that where it names `database` among the checks that are repaired by themselves: what looks after this
check is the API, which says nothing of a database that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from appliance.site.alone import is_held
from appliance.site.model import Site
from appliance.site.repair.record import Record
from common.repairs import OPEN, REPAIR_OF, TRIES, WITHIN

AFTER_S = 120.0
"""So long nothing is done: its watchdog and systemd start an API by themselves."""
CHECK = "database"
BY = f"check:{CHECK}"
"""Who ordered it, as the leader of the API says it of its own orders."""


class Outage:
    """How long the API has not answered, and what was tried; `now` is a clock that only goes forward, in seconds."""

    def __init__(self, state: Path, now: Callable[[], float]) -> None:
        """Begin with an API that has answered just now."""
        self._state = state
        self._now_s = now
        self._since_s = self._asked_s = now()
        self._tried_s: list[float] = []

    def ends(self) -> None:
        """Take note that the API answered."""
        self._since_s = self._asked_s = self._now_s()
        self._tried_s = []

    def repair(self, site: Site, records: Iterable[Record]) -> Record | None:
        """Return the run that is to begin now, if any: three times at most until the API has answered again."""
        now_s = self._now_s()
        # a look at the nodes that took long says nothing of the API
        if now_s - self._asked_s >= AFTER_S:
            self._since_s = now_s
        self._asked_s = now_s
        wanted = site.repair.controller and CHECK in site.repair.repair_automatic
        if not wanted or now_s - self._since_s < AFTER_S or any(record.state in OPEN for record in records):
            return None
        # a deploy stops the API, and so does whoever brings a backup back
        if is_held(self._state):
            self._since_s = now_s
            return None
        last_s = self._tried_s[-1] if self._tried_s else float("-inf")
        if len(self._tried_s) >= TRIES or now_s - last_s < WITHIN.total_seconds() / TRIES:
            return None
        self._tried_s.append(now_s)
        return Record(REPAIR_OF[CHECK], BY)
