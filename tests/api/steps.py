"""Short words for what tests do with sessions and nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import httpx
import pytest
from sqlalchemy import text

from api import clock
from api.clock import now
from api.control.reconcilers.failures import RETRY_S
from api.control.reconcilers.timed import SLACK_S, STALL_S
from api.database import LEADER_LOCK
from api.resources.nodes import service as nodes
from tests.api.cluster import V1, Cluster, ok

MINUTE, HOUR = 60, 3600
OF_LEADERS = (
    f"FROM pg_locks WHERE locktype = 'advisory' AND objid = {LEADER_LOCK} "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Where it is told who leads: tests beside this one have leaders on the same server."""


def body(name: str = "demo", project: str = "team-a", **more: Any) -> dict[str, Any]:
    """Return a request of a session."""
    return {"name": name, "project": project, "image": "python", "gpu_milli": 500, **more}


async def run(cluster: Cluster, name: str = "demo", **more: Any) -> dict[str, Any]:
    """Submit a session and return it as it runs."""
    await cluster.submit(name, **more)
    await cluster.settle()
    session = await cluster.session(name)
    assert session["state"] == "RUNNING", session
    return session


async def delete(cluster: Cluster, name: str = "demo") -> Any:
    return await ok(wish(cluster, name))


async def wish(cluster: Cluster, name: str) -> httpx.Response:
    """Ask for a session's deletion and return the answer as it comes."""
    return await cluster.admin.delete(f"{V1}/sessions/{name}", params={"project": "team-a"})


def pass_time(cluster: Cluster, seconds: float) -> None:
    """Let the reconcilers' clock be so far ahead of ours; nodes count as lost only after their time to report."""
    before, cluster.clock.ahead = cluster.clock.ahead, timedelta(seconds=seconds)
    cluster.clock.passed += (cluster.clock.ahead - before).total_seconds()


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock of the master so far ahead, or back."""

    class Set(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(seconds=seconds)

    monkeypatch.setattr(clock, "datetime", Set)


async def once(cluster: Cluster) -> None:
    """Do what is due once, whatever comes of it."""
    await cluster.manager.reconcile()
    for task in list(cluster.manager.operations.values()):
        await task


async def try_again(cluster: Cluster) -> None:
    """Let what has failed be tried again."""
    cluster.clock.passed += RETRY_S[-1]
    await cluster.settle()


async def listen(cluster: Cluster, *, for_s: float = 0.0, silent: str = "") -> None:
    """Let the API run for so long that it may judge who is silent, which nobody is but perhaps one node."""
    until = cluster.clock.passed + (for_s or cluster.settings.node_lost_s + SLACK_S)
    while cluster.clock.passed < until:
        async with cluster.database.transaction() as db:
            alive = [node.name for node in await nodes.every(db) if node.name != silent]
            await nodes.note_alive(db, dict.fromkeys(alive, now()))
        cluster.clock.passed += STALL_S
        await cluster.manager.reconcile()


async def lose(cluster: Cluster, name: str = "worker1") -> None:
    """Let a node be silent for too long."""
    await listen(cluster)
    await listen(cluster, for_s=cluster.settings.node_lost_s + STALL_S, silent=name)
    await cluster.settle()
    assert (await ok(cluster.admin.get(f"{V1}/nodes/{name}")))["state"] == "lost"


async def is_somebody_waiting(cluster: Cluster) -> bool:
    """Return whether a statement waits for a lock that another transaction holds."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with cluster.database.reading() as db:
        return bool(await db.scalar(text(waiting)))


async def wait_behind_a_limit(cluster: Cluster) -> None:
    """Let a session of the whole node wait for one that ends in an hour, with its places reserved at once."""
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 16000}))
    loop = cluster.manager.loop
    loop._scheduler_settings = replace(loop._scheduler_settings, reserve_after_s=0)
    await run(cluster, "long", gpu_milli=2000, preemptible=False, limit_s=HOUR)
    await cluster.submit("large", gpu_milli=4000, preemptible=False)


async def wait_behind_limits(cluster: Cluster) -> None:
    """Let a short one start before it."""
    await wait_behind_a_limit(cluster)
    await cluster.settle()
    assert (await cluster.session("large"))["state"] == "PENDING"
    await run(cluster, "short", gpu_milli=1000, preemptible=False, limit_s=MINUTE)
