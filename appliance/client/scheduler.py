"""Decisions of the scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from appliance.client.transport import NO_NAMES, Resource
from appliance.client.views import QueueEntry


class Scheduler(Resource):
    """The scheduler's last decisions, for administrators and auditors."""

    def queue(self) -> list[QueueEntry]:
        """Return the sessions that wait, in the order in which they were served last, with the reason of each."""
        pages = self._api.pages(QueueEntry, "/scheduler/queue", query={})
        return [entry for page in pages for entry in page]

    def cycle(self) -> Iterator[bytes]:
        """Yield the last cycle, what the scheduler saw and decided, as it is kept in a file."""
        return self._api.stream("/scheduler/cycle", NO_NAMES)
