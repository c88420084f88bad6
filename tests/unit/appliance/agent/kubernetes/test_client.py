"""Kubernetes' interface: who we are, and what its refusals mean."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from appliance.agent.kubernetes import client as module
from appliance.agent.kubernetes.client import Client, ClusterAwayError, GoneError, refusal
from appliance.agent.kubernetes.pod_supervisor import NODES
from common.errors import ConflictError, InputError, NotFoundError, PenstockError, UnavailableError
from tests.fakes.kubernetes import FakeKubernetes

pytestmark = pytest.mark.anyio
WHO = 'User "system:serviceaccount:penstock:penstock-agent"'


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (400, "container is waiting to start", InputError),
        (401, "Unauthorized", UnavailableError),
        (
            403,
            f'pods is forbidden: {WHO} cannot create resource "pods" in API group "" in the namespace "default"',
            UnavailableError,
        ),
        (
            403,
            'pods "x" is forbidden: exceeded quota: most, requested: pods=1, used: pods=0, limited: pods=0',
            ConflictError,
        ),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', InputError),
        (403, 'pods "x" is forbidden: pod rejected: RuntimeClass "kata" not found', InputError),
        (400, 'admission webhook "images.corp" denied the request: no signature', InputError),
        (404, 'pods "x" not found', NotFoundError),
        (409, 'pods "x" already exists', ConflictError),
        (410, "too old resource version", GoneError),
        (422, 'Pod "x" is invalid', InputError),
        (429, "too many requests", ClusterAwayError),
        (500, "no preferred addresses found; known addresses: []", ClusterAwayError),
    ],
)
async def test_a_refusal_keeps_the_clusters_own_words(code: int, message: str, kind: type[PenstockError]) -> None:
    """The messages are those of a real API server (1.20)."""
    error = refusal(code, json.dumps({"kind": "Status", "message": message}).encode())
    assert type(error) is kind
    assert message in str(error)


async def test_an_answer_that_is_no_status_is_told_as_it_is() -> None:
    assert "bad gateway" in str(refusal(502, b"bad gateway\n"))
    assert "status 503" in str(refusal(503, b""))


async def test_the_token_is_read_anew_for_each_call(client: Client, fake: FakeKubernetes, tmp_path: Path) -> None:
    await client.get("/version")
    fake.token = "replaced"
    with pytest.raises(UnavailableError, match="look at the token of the service account"):
        await client.get("/version")
    (tmp_path / "token").write_text("replaced")
    await client.get("/version")
    (tmp_path / "token").unlink()
    with pytest.raises(UnavailableError, match="the token of the cluster cannot be read"):
        await client.get("/version")


async def test_a_long_list_comes_in_pages(
    client: Client, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    for number in range(3):
        fake.add_node(f"more{number}")
    nodes, version = await client.every(NODES)
    assert [node["metadata"]["name"] for node in nodes] == ["left", "more0", "more1", "more2", "right"]
    assert int(version) > 1
    assert len(fake.requests) == 3


async def test_a_cluster_that_does_not_answer_is_away(client: Client, fake: FakeKubernetes) -> None:
    fake.away = True
    with pytest.raises(ClusterAwayError, match="connection refused"):
        await client.get("/version")
    with pytest.raises(ClusterAwayError):
        async with client.stream(NODES, {}):
            pass


async def test_what_is_gone_is_deleted(client: Client) -> None:
    await client.delete(f"{client.pods}/nothing", 0)


async def test_a_list_whose_token_expired_begins_anew(
    client: Client, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token that comes with the refusal would lead to a list of two moments."""
    monkeypatch.setattr(module, "PAGE", 1)
    handle, asked = fake.handle, 0

    async def compacted_once(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked == 2:
            fake.add_node("a")
            fake.compact()
        return await handle(request)

    monkeypatch.setattr(client._http, "_transport", httpx.MockTransport(compacted_once))
    nodes, version = await client.every(NODES)
    assert [node["metadata"]["name"] for node in nodes] == ["a", "left", "right"]
    assert int(version) == int(nodes[0]["metadata"]["resourceVersion"])


async def test_a_list_that_always_expires_is_the_clusters_failure(
    client: Client, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 1)
    handle = fake.handle

    async def compacted(request: httpx.Request) -> httpx.Response:
        fake.remove_node("left")
        fake.add_node("left")
        fake.compact()
        return await handle(request)

    monkeypatch.setattr(client._http, "_transport", httpx.MockTransport(compacted))
    with pytest.raises(ClusterAwayError, match="expires before it is read"):
        await client.every(NODES)


async def test_a_cluster_that_is_asked_too_much_is_asked_again_when_it_says(
    client: Client, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    fake.busy = 2
    await client.get("/version")
    assert pauses == [1.0, 1.0]
    fake.busy = 1
    async with client.stream(NODES, {"watch": "true", "resourceVersion": "1", "timeoutSeconds": 0}):
        assert fake.busy == 0


async def test_patience_with_a_busy_cluster_ends(
    client: Client, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    fake.busy = 1
    with pytest.raises(ClusterAwayError, match="too many requests"):
        await client.get("/version")
