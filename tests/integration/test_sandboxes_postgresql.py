"""Sandboxes and denials on PostgreSQL: which sandbox a session gets, and what agents tell of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.clock import now
from api.resources.denials import service
from tests.api.cluster import V1, Cluster, ok
from tests.api.resources.denials.test_denials import denial, report, shown

pytestmark = pytest.mark.anyio


async def test_the_sandbox_of_a_session_and_what_it_denied(cluster: Cluster) -> None:
    rules = [{"calls": ["mkdir"], "when": [{"argument": 1, "values": [2**64 - 1]}]}]
    await ok(cluster.admin.post(f"{V1}/sandboxes", json={"name": "wide", "rules": rules, "site_wide": True}))
    await ok(cluster.admin.post(f"{V1}/sandboxes", json={"name": "ours", "rules": rules, "projects": ["team-a"]}))
    await cluster.submit("a", 500)
    await cluster.manager.settle()
    session = await cluster.session("a")
    assert session["sandbox"] == "ours"
    for count in (2, 5, 5):
        assert (await report(cluster, denial(session, count))).status_code == 204
    found = await shown(cluster)
    assert (found["denied"], found["series"][0]["count"]) == (5, 5)
    later = now() + timedelta(days=1)
    async with cluster.database.transaction() as db:
        assert await service.any_old(db, later, 60)
        await service.forget(db, later, 60)
    assert (await shown(cluster))["series"] == []
