"""A user is moved to another domain while a submission of the same user is under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.auth.policy import UserRole
from api.resources.user_policies import service as user_policies
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.domains.test_domains import person, two_companies

pytestmark = pytest.mark.anyio


async def test_who_is_moved_while_submitting_leaves_no_session_behind(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The move comes after the rights of the submission were looked at, and before its session is written."""
    await two_companies(cluster)
    alice = await person(cluster, "alice", "acme", UserRole.MEMBER)
    project = {"name": "rockets", "quota_milli": 1000, "period": {"ends_at": None}, "domain": "acme"}
    await ok(cluster.admin.post(f"{V1}/projects", json={**project, "members": ["alice"]}))
    await cluster.add_image()
    await cluster.add_node()
    hold = user_policies.hold

    async def moved_meanwhile(*args: Any) -> Any:
        # a task of its own, as every request has where it is served
        await asyncio.create_task(ok(cluster.admin.patch(f"{V1}/users/alice", json={"domain": "globex"})))
        return await hold(*args)

    monkeypatch.setattr(user_policies, "hold", moved_meanwhile)
    asked = {"name": "demo", "project": "rockets", "image": "python", "gpu_milli": 500}
    error = await refused(alice.post(f"{V1}/sessions", json=asked), 409)
    assert error == {
        "where": "project",
        "reason": "alice has been moved to another domain meanwhile",
        "hint": "submit it again",
    }
    await refused(cluster.admin.get(f"{V1}/sessions/demo", params={"project": "rockets"}), 404)
