"""What the tests of the reconcilers share with those of sessions, and words for nodes that go away."""

from __future__ import annotations

from api.clock import now
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import delete, impatient, pass_time, ready, run

__all__ = ["delete", "impatient", "lose", "pass_time", "ready", "run"]


async def lose(cluster: Cluster, name: str = "worker1") -> None:
    """Let a node be silent for too long, as far as the database knows."""
    from datetime import timedelta

    from api.resources.nodes import service as nodes

    async with cluster.database.transaction() as db:
        (await nodes.get(db, name)).last_seen = now() - timedelta(seconds=16)
    cluster.manager._rules._began = float("-inf")
    await cluster.manager.settle()
    assert (await ok(cluster.admin.get(f"{V1}/nodes/{name}")))["state"] == "lost"
