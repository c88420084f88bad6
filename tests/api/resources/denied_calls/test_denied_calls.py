"""What agents say that sandboxes denied is counted once, kept for a while, and shown to who looks after the project."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from api.auth.policy import UserRole
from api.clock import now
from api.resources.denied_calls import service
from common.denied_call_protocol import DENIED_CALLS_PATH, DeniedCall, DeniedCallReport
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio

MOMENT = now().replace(microsecond=5)


async def report(
    cluster: Cluster, *denied_calls: DeniedCall, node: str = "worker1", agent: str = "worker1"
) -> httpx.Response:
    body = DeniedCallReport(name=node, denied_calls=list(denied_calls)).model_dump(mode="json")
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": agent}) as client:
        return await client.post(DENIED_CALLS_PATH, json=body)


def denied_call(session: dict[str, Any], count: int = 1, at: datetime = MOMENT, **more: Any) -> DeniedCall:
    fields = {
        "container_id": f"session-{session['id']}-0-0",
        "session_id": session["id"],
        "call": "mkdir",
        "process": "sh",
        "pid": 7,
        "effect": "EPERM",
        "first_at": at,
        "last_at": at,
    }
    return DeniedCall(**{**fields, "count": count, **more})


async def shown(cluster: Cluster) -> dict[str, Any]:
    return dict(await ok(cluster.admin.get(f"{V1}/sessions/a/denied-calls", params={"project": "team-a"})))


@pytest.fixture
async def session(cluster: Cluster) -> dict[str, Any]:
    """A session that runs in a sandbox."""
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    body = {"name": "strict", "rules": [{"calls": ["mkdir"]}], "site_wide": True}
    await ok(cluster.admin.post(f"{V1}/sandboxes", json=body))
    await cluster.submit("a", 500)
    await cluster.settle()
    return await cluster.session("a")


async def test_denied_calls_are_described_and_counted_in_the_session(cluster: Cluster, session: dict[str, Any]) -> None:
    later = MOMENT + timedelta(seconds=1)
    first = denied_call(session, 3)
    second = denied_call(session, 2, later, call="unshare", process="python3", effect="killed")
    assert (await report(cluster, first, second)).status_code == 204
    found = await shown(cluster)
    assert (found["sandbox"], found["denied"]) == ("strict", 5)
    assert [(each["call"], each["process"], each["effect"], each["count"]) for each in found["series"]] == [
        ("unshare", "python3", "killed", 2),
        ("mkdir", "sh", "EPERM", 3),
    ]
    assert (await cluster.session("a"))["denied"] == 5


async def test_what_is_told_twice_counts_once_and_a_series_grows(cluster: Cluster, session: dict[str, Any]) -> None:
    for count, pid in ((3, 7), (3, 7), (10, 9), (4, 8)):
        await report(cluster, denied_call(session, count, pid=pid))
    [series] = (await shown(cluster))["series"]
    assert (series["count"], series["pid"]) == (10, 9)
    assert (await shown(cluster))["denied"] == 10
    # an agent that was started anew begins a series of its own
    await report(cluster, denied_call(session, 2, MOMENT + timedelta(seconds=5)))
    assert (await shown(cluster))["denied"] == 12


async def test_a_node_speaks_for_itself_and_for_containers_that_it_has(
    cluster: Cluster, session: dict[str, Any]
) -> None:
    assert (await report(cluster, denied_call(session), agent="worker2")).status_code == 403
    await cluster.add_node("worker2")
    await report(cluster, denied_call(session), node="worker2", agent="worker2")
    await report(cluster, denied_call(session, container_id=f"session-{session['id']}-7-0"))
    await report(cluster, denied_call({"id": "nonsense"}))
    await report(cluster, denied_call(session, at=now() + timedelta(hours=1)))
    await report(cluster, denied_call(session, at=now() - timedelta(days=60)))
    assert (await shown(cluster))["denied"] == 0


async def test_a_session_has_only_so_many_series_and_the_rest_is_not_kept(
    cluster: Cluster, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_SERIES", 3)
    await report(cluster, *(denied_call(session, process=f"p{number}") for number in range(5)))
    await report(cluster, denied_call(session, 4, process="p0"), denied_call(session, process="p9"))
    assert len((await shown(cluster))["series"]) == 3
    assert (await shown(cluster))["denied"] == 6


async def test_denied_calls_outlive_the_session_and_go_after_a_while(cluster: Cluster, session: dict[str, Any]) -> None:
    await report(cluster, denied_call(session))
    await ok(cluster.admin.delete(f"{V1}/sessions/a", params={"project": "team-a"}))
    await cluster.settle()
    await report(cluster, denied_call(session, 2))
    assert (await shown(cluster))["denied"] == 2
    async with cluster.database.transaction() as db:
        assert await service.forget(db, now(), 3600) == 0
        assert await service.forget(db, now() + timedelta(hours=2), 3600) == 1
    assert await shown(cluster) | {"session_id": ""} == {
        "session_id": "",
        "sandbox": "strict",
        "denied": 2,
        "series": [],
    }


async def test_managers_and_auditors_see_denied_calls_and_members_only_their_number(
    cluster: Cluster, session: dict[str, Any]
) -> None:
    await report(cluster, denied_call(session))
    where, query = f"{V1}/sessions/a/denied-calls", {"project": "team-a"}
    olga, grace, ada = (
        await cluster.user("olga", UserRole.AUDITOR),
        await cluster.user("grace"),
        await cluster.user("ada"),
    )
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"managers": ["grace"], "members": ["ada"]}))
    for caller in (olga, grace):
        assert (await ok(caller.get(where, params=query)))["denied"] == 1
    await refused(ada.get(where, params=query), 403)
    assert (await ok(ada.get(f"{V1}/sessions/a", params=query)))["denied"] == 1
