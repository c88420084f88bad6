"""Limits of users, domains that they belong to, and accounting of what they held."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client import views
from appliance.client.requests import DomainChange, DomainRequest, PolicyChange, PolicyRequest
from appliance.client.transport import Resource
from appliance.client.views import Domain, Done, Policy
from appliance.client.words import By


class Policies(Resource):
    """User policies: what a user's live sessions may hold together."""

    def list(self) -> builtins.list[Policy]:
        """Return all user policies."""
        return self._api.call(list[Policy], "GET", "/user-policies")

    def get(self, name: str) -> Policy:
        """Return one user policy."""
        return self._api.call(Policy, "GET", "/user-policies/{name}", {"name": name})

    def create(self, **request: Unpack[PolicyRequest]) -> Policy:
        """Create a user policy."""
        return self._api.call(Policy, "POST", "/user-policies", body=request)

    def update(self, name: str, /, **changes: Unpack[PolicyChange]) -> Policy:
        """Change a user policy; it holds for what is submitted from now on."""
        return self._api.call(Policy, "PATCH", "/user-policies/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a user policy that no user has."""
        return self._api.call(Done, "DELETE", "/user-policies/{name}", {"name": name})


class Domains(Resource):
    """Users, projects and resource groups that belong together."""

    def list(self) -> builtins.list[Domain]:
        """Return the domains that the caller may see."""
        return self._api.call(list[Domain], "GET", "/domains")

    def create(self, **request: Unpack[DomainRequest]) -> Domain:
        """Create a domain."""
        return self._api.call(Domain, "POST", "/domains", body=request)

    def change(self, name: str, **changes: Unpack[DomainChange]) -> Domain:
        """Change a domain; quotas that are beyond a new limit stay, but grow no more."""
        return self._api.call(Domain, "PATCH", "/domains/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a domain that nothing belongs to."""
        return self._api.call(Done, "DELETE", "/domains/{name}", {"name": name})


class Accounting(Resource):
    """What was held, by whom, for how long."""

    def report(self, *, starts_at: str | None = None, ends_at: str | None = None, by: By = "user") -> views.Accounting:
        """Report what ran in a period, by default the last 30 days: GPUs held, how busy they were, what it costs."""
        query = {"starts_at": starts_at, "ends_at": ends_at, "by": by}
        return self._api.call(views.Accounting, "GET", "/accounting", query=query)

    def timeline(
        self,
        *,
        starts_at: str | None = None,
        ends_at: str | None = None,
        by: By = "project",
        points: int | None = None,
    ) -> views.Timeline:
        """Report what was held of GPUs over time, by default in the last 30 days, in at most so many `points`."""
        query = {"starts_at": starts_at, "ends_at": ends_at, "by": by, "points": points}
        return self._api.call(views.Timeline, "GET", "/accounting/timeline", query=query)

    def waits(
        self,
        *,
        starts_at: str | None = None,
        ends_at: str | None = None,
        by: By = "project",
        points: int | None = None,
    ) -> views.Waits:
        """Report how long sessions waited before they ran, by default in the last 30 days, and how long some wait."""
        query = {"starts_at": starts_at, "ends_at": ends_at, "by": by, "points": points}
        return self._api.call(views.Waits, "GET", "/accounting/waits", query=query)

    def utilization(
        self, *, starts_at: str | None = None, ends_at: str | None = None, points: int | None = None
    ) -> views.Utilization:
        """Report of the site's GPUs how many there were, were held and were busy over time; for administrators."""
        query = {"starts_at": starts_at, "ends_at": ends_at, "points": points}
        return self._api.call(views.Utilization, "GET", "/accounting/utilization", query=query)
