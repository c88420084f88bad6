"""The logs of the site: what services of all nodes have told the journal."""

from __future__ import annotations

import builtins
from itertools import chain, islice

from appliance.client.transport import Resource
from appliance.client.views import LogEntry


class Logs(Resource):
    """What services of all nodes have logged, for administrators and auditors; the audit log tells of each look."""

    def search(
        self,
        *,
        request: str | None = None,
        session: str | None = None,
        project: str | None = None,
        user: str | None = None,
        node: str | None = None,
        unit: str | None = None,
        level: str | None = None,
        since: str | None = None,
        until: str | None = None,
        most: int = 1000,
    ) -> builtins.list[LogEntry]:
        """Return `most` lines at most, newest first; a session is named by its id, or by its name and its project."""
        query = {"request": request, "session": session, "project": project, "user": user, "node": node}
        query |= {"unit": unit, "level": level, "since": since, "until": until}
        return builtins.list(islice(chain.from_iterable(self._api.pages(LogEntry, "/logs", query=query)), most))
