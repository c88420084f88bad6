"""The audit log: who did what, and whether its files are as they were written."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from itertools import chain, islice

from appliance.client.transport import Resource
from appliance.client.views import AuditEntry, AuditFile, AuditVerification, Done


class Audit(Resource):
    """The audit log, for administrators and auditors; each look at it leaves a line there."""

    def search(
        self,
        *,
        user: str | None = None,
        object_: str | None = None,
        project: str | None = None,
        action: str | None = None,
        result: str | None = None,
        node: str | None = None,
        since: str | None = None,
        until: str | None = None,
        most: int = 1000,
    ) -> builtins.list[AuditEntry]:
        """Return `most` lines at most, newest first: of a user, on an object such as `projects/vision`, by action."""
        query = {"user": user, "object": object_, "project": project, "action": action, "result": result, "node": node}
        pages = self._api.pages(AuditEntry, "/audit", query=query | {"since": since, "until": until})
        return builtins.list(islice(chain.from_iterable(pages), most))

    def verify(self) -> AuditVerification:
        """Verify the whole log; that takes as long as reading it."""
        return self._api.call(AuditVerification, "GET", "/audit/verification", patient=True)

    def files(self) -> builtins.list[AuditFile]:
        """Return the files of the log, one a day."""
        return self._api.call(builtins.list[AuditFile], "GET", "/audit/files")

    def file(self, day: str) -> Iterator[bytes]:
        """Yield the file of a day (YYYYMMDD) as it is."""
        return self._api.stream("/audit/files/{day}", {"day": day})

    def delete(self, day: str) -> Done:
        """Delete the file of a day that is over; the log says who did so."""
        return self._api.call(Done, "DELETE", "/audit/files/{day}", {"day": day})
