"""Heartbeats that repeat the one before take a short way, to the same end."""

from __future__ import annotations

import httpx
import pytest

from api.resources.nodes.heartbeats import Heartbeats, interval_of
from common.protocol import HEARTBEAT_PATH, ContainerStatus
from tests.api.cluster import Cluster
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio


async def post(cluster: Cluster, body: str | bytes, name: str = "worker1") -> httpx.Response:
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": name}) as agent:
        return await agent.post(HEARTBEAT_PATH, content=body, headers={"Content-Type": "application/json"})


def latest(cluster: Cluster) -> int:
    heartbeats: Heartbeats = cluster.app.state.heartbeats
    known = heartbeats.latest("worker1")
    return known.sequence if known else 0


async def test_the_answer_is_as_before_and_the_number_counts(cluster: Cluster) -> None:
    answers = [await post(cluster, beat(number).model_dump_json()) for number in (1, 2, 3)]
    assert [answer.status_code for answer in answers] == [200, 204, 204]
    assert len({answer.headers["X-Request-Id"] for answer in answers}) == 3
    assert answers[0].json() == {"interval_s": interval_of("worker1", 5.0)}, "the rest is at its default"
    assert latest(cluster) == 3
    assert (await post(cluster, beat(2).model_dump_json())).status_code == 200
    assert latest(cluster) == 3, "a late one is left out"


async def test_what_differs_is_looked_at(cluster: Cluster) -> None:
    await post(cluster, beat(1).model_dump_json())
    await post(cluster, beat(2).model_dump_json())
    cluster.app.state.heartbeats.take()
    await post(cluster, beat(3, status=ContainerStatus.RUNNING).model_dump_json())
    (report,) = cluster.app.state.heartbeats.take()
    assert (report.news, len(report.heartbeat.containers)) == (True, 1)
    bad = beat(4).model_dump_json().replace('"port":6001', '"port":70000')
    assert (await post(cluster, bad)).status_code == 422
    assert (await post(cluster, beat(5).model_dump_json().replace("5,", "5.5,", 1))).status_code == 422


async def test_nobody_repeats_for_another_node(cluster: Cluster) -> None:
    await post(cluster, beat(1).model_dump_json())
    assert (await post(cluster, beat(2).model_dump_json(), name="worker2")).status_code == 403
    async with cluster.client() as outsider:
        response = await outsider.post(HEARTBEAT_PATH, content=beat(2).model_dump_json())
    assert response.status_code == 401
    assert latest(cluster) == 1
