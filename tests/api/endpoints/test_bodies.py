"""Bodies: who calls is known before any of it is read, and no more is read than the caller may send."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from api.endpoints import bodies
from api.endpoints.repeats import MAX_BYTES
from common.protocol import HEARTBEAT_PATH, METRICS_PATH, ContainerState, ContainerStatus, GpuMetrics, MetricsReport
from tests.api.cluster import V1, Cluster, ok, problems, refused
from tests.api.endpoints.routes import routes_of
from tests.fakes.heartbeats import beat
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
KIB = 1024
LOGIN = f"{V1}/auth/login"
PROJECTS = f"{V1}/projects"
AGENT = {"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}


class Upload:
    """A body that comes in parts of a KiB, and how many of them were taken; no header says how many there are."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.taken < self.parts:
            self.taken += 1
            yield b" " * KIB


def padded(body: bytes, size: int) -> bytes:
    return body + b" " * (size - len(body))


async def test_the_body_of_who_is_not_known_has_64_kib_at_most(cluster: Cluster) -> None:
    body = f'{{"name": "admin", "password": "{PASSWORD}"}}'.encode()
    async with cluster.client() as guest:
        await ok(guest.post(LOGIN, content=padded(body, 64 * KIB), headers=JSON))
        error = await refused(guest.post(LOGIN, content=padded(body, 64 * KIB + 1), headers=JSON), 413)
    assert error == {"where": "", "reason": "the body has more than 64 KiB", "hint": "send less at a time"}


async def test_who_is_known_may_send_a_mib(cluster: Cluster) -> None:
    body = b'{"name": "team-a", "quota_milli": 1000, "period": {"ends_at": null}}'
    await ok(cluster.admin.post(PROJECTS, content=padded(body, KIB * KIB), headers=JSON))
    error = await refused(cluster.admin.post(PROJECTS, content=padded(body, KIB * KIB + 1), headers=JSON), 413)
    assert error["reason"] == "the body has more than 1024 KiB"


@pytest.mark.parametrize(("path", "kib"), [(LOGIN, 64), (PROJECTS, 1024)])
async def test_a_body_of_no_known_length_is_read_up_to_the_bound(cluster: Cluster, path: str, kib: int) -> None:
    upload = Upload(parts=20 * KIB)
    await refused(cluster.admin.post(path, content=upload, headers=JSON), 413)
    assert upload.taken <= kib + 1 + bodies.DROPPED // KIB


async def test_a_body_that_says_it_is_too_large_is_refused_whatever_comes(cluster: Cluster) -> None:
    upload = Upload(parts=20 * KIB)
    async with cluster.client() as guest:
        await refused(guest.post(LOGIN, content=upload, headers=JSON | {"Content-Length": str(65 * KIB)}), 413)
    assert upload.taken <= 1 + bodies.DROPPED // KIB


async def test_a_body_may_have_more_than_it_says(cluster: Cluster) -> None:
    upload = Upload(parts=20 * KIB)
    async with cluster.client() as guest:
        await refused(guest.post(LOGIN, content=upload, headers=JSON | {"Content-Length": "7"}), 413)
    assert upload.taken <= 65 + bodies.DROPPED // KIB


async def test_nothing_is_read_of_who_may_not_call(cluster: Cluster) -> None:
    """Neither parsed: what is no JSON is not looked at."""
    async with cluster.client() as outsider, await cluster.user("alice") as alice:
        for route in routes_of(cluster.app):
            if route.method in ("POST", "PUT", "PATCH") and route.path != LOGIN:
                upload = Upload(parts=1)
                response = await outsider.request(route.method, route.filled, content=upload, headers=JSON)
                assert (response.status_code, upload.taken) == (401, 0), str(route)
        upload = Upload(parts=1)
        await refused(alice.post(PROJECTS, content=upload, headers=JSON), 403)
        assert upload.taken == 0


async def test_the_longest_report_of_an_agent_is_taken(cluster: Cluster) -> None:
    await cluster.add_node("worker1")
    sample = GpuMetrics(
        container_id=f"session-{'f' * 36}-10-10",
        session_id="f" * 36,
        uuid=f"GPU-{'f' * 36}",
        at=datetime(2026, 12, 31, 23, 59, 59, 999999, UTC),
        memory_mib=10**6,
        busy_permille=1000,
        processes=10**4,
    )
    report = MetricsReport(name="worker1", samples=[sample] * 10_000).model_dump_json().encode()
    assert len(report) > 2 * bodies.PEOPLE.size
    async with cluster.client(**AGENT) as agent:
        assert (await agent.post(METRICS_PATH, content=report, headers=JSON)).status_code == 204
        too_large = padded(report, bodies.AGENTS.size + 1)
        await refused(agent.post(METRICS_PATH, content=too_large, headers=JSON), 413)


async def test_a_heartbeat_of_a_crowded_node_is_taken(cluster: Cluster) -> None:
    """Longer than what is remembered of one."""
    await cluster.add_node("worker1")
    container = ContainerState(id="c", session_id="s", status=ContainerStatus.FAILED, error="x" * 2000)
    content = beat(9, containers=[container] * 1500).model_dump_json().encode()
    assert len(content) > 3 * MAX_BYTES
    async with cluster.client(**AGENT) as agent:
        response = await agent.post(HEARTBEAT_PATH, content=content, headers=JSON)
    assert response.status_code == 200, response.text


def keys(count: int) -> dict[str, int]:
    return {f"k{number}": 0 for number in range(count)}


async def test_of_many_errors_20_are_told_and_how_many_more_there_are(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        response = await guest.post(LOGIN, json=keys(5000))
    assert response.status_code == 422
    told = problems(response)
    assert len(told) == 21
    assert {error["reason"] for error in told[:20]} == {"this is required", "unknown key"}
    assert told[20] == {"where": "", "reason": "4982 more", "hint": "correct these first"}
    assert response.json()["detail"].splitlines()[-1] == "4982 more. Hint: correct these first"


async def test_what_a_service_finds_is_told_so_too(cluster: Cluster) -> None:
    members = [f"user-{number}" for number in range(500)]
    body = {"name": "team-a", "quota_milli": 0, "period": {"ends_at": None}, "members": members}
    told = problems(await cluster.admin.post(PROJECTS, json=body))
    assert (len(told), told[20]["reason"]) == (21, "480 more")


async def test_the_answer_is_short_whatever_is_sent(cluster: Cluster) -> None:
    long_keys = {f"{number}{'k' * 2500}": 0 for number in range(25)}
    async with cluster.client() as guest:
        response = await guest.post(LOGIN, json=long_keys)
    told = problems(response)
    assert len(told) == 21
    assert all(len(error["where"]) <= 2000 for error in told)
    assert len(response.content) < 128 * KIB


@pytest.mark.parametrize("nested", [False, True])
async def test_a_body_of_nothing_but_keys_is_not_validated(cluster: Cluster, nested: bool) -> None:
    """Each would be an error of its own: 90,000 of them take seconds to tell."""
    found = {"pvcs": [keys(3000)] * 4} if nested else keys(12_000)
    error = await refused(cluster.admin.post(f"{V1}/sessions", json=found), 413)
    assert error["reason"] == "the objects of the body have more than 10000 keys together"


@pytest.mark.parametrize(
    "found",
    [keys(8000), {"environment": keys(9900)}, {"pvcs": [keys(300)] * 32}, {"args": [0] * 300_000}],
    ids=["keys", "environment", "pvcs", "args"],
)
async def test_no_refusal_holds_everybody_up(cluster: Cluster, found: dict[str, Any]) -> None:
    """The worst that is validated takes the loop less than half a second, on whatever machine."""
    content = json.dumps(found).encode()
    began = time.thread_time()
    response = await cluster.admin.post(f"{V1}/sessions", content=content, headers=JSON)
    assert response.status_code == 422
    assert time.thread_time() - began < 0.5


async def test_a_client_may_say_anything_as_its_length(cluster: Cluster) -> None:
    headers = JSON | {"Content-Length": "9" * 5000}
    async with cluster.client() as guest:
        await refused(guest.post(LOGIN, content=Upload(parts=1), headers=headers), 413)
