"""Logs: of what runs, of what has run, and of what breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from api.endpoints import sessions as endpoints
from api.engine.base import AgentAddress, UnreachableError
from api.resources.sessions import service
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


async def test_of_a_long_log_the_end_is_kept(ready: Cluster) -> None:
    session = await run(ready)
    ready.engine.output[ready.container(session)[1]] = b"x" * 300_000 + b"end"
    await delete(ready)
    await ready.settle()
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})
    assert len(log.content) == 256 * 1024
    assert log.content.endswith(b"end")


async def test_the_log_of_a_running_session(ready: Cluster) -> None:
    session = await run(ready)
    ready.engine.output[ready.container(session)[1]] = b"epoch 1\n"
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})
    assert log.text == "epoch 1\n"
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await refused(ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"}), 503)


async def test_a_client_that_goes_away_before_the_first_line_leaves_nothing_behind(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready)
    open_streams: list[str] = []

    async def silent(_agent: AgentAddress, container: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        open_streams.append(container)
        followed.set()
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            open_streams.remove(container)

    async def receive() -> dict[str, str]:
        await followed.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        """Take the head of the answer."""

    followed = asyncio.Event()
    monkeypatch.setattr(ready.engine, "logs", silent)
    monkeypatch.setattr(endpoints, "FIRST_PART_S", 0.01)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "GET",
        "path": f"{V1}/sessions/demo/logs",
        "query_string": b"project=team-a&follow=true",
        "headers": [(b"authorization", ready.admin.headers["authorization"].encode())],
    }
    async with asyncio.timeout(60):
        await ready.app(scope, receive, send)
    assert open_streams == []


async def test_a_waiting_session_has_no_log(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    assert (await cluster.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})).text == ""


async def test_a_log_that_breaks_off_has_no_proper_end(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes a connection whose answer was not finished, so that the client notices."""

    async def broken(_agent: AgentAddress, _id: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        yield b"epoch 1\n"
        raise UnreachableError("the agent of worker1 does not answer", delivered=True)

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await run(ready)
    sent: list[MutableMapping[str, Any]] = []
    monkeypatch.setattr(ready.engine, "logs", broken)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": "GET",
        "path": f"{V1}/sessions/demo/logs",
        "query_string": b"project=team-a",
        "headers": [(b"authorization", ready.admin.headers["authorization"].encode())],
    }
    async with asyncio.timeout(60):
        await ready.app(scope, receive, send)
    assert [message.get("body", b"") for message in sent] == [b"", b"epoch 1\n"]
    assert sent[-1]["more_body"], "nothing says that this was all"


async def test_the_log_of_a_session_that_was_put_back_is_kept(ready: Cluster) -> None:
    session = await run(ready)
    ready.engine.output[ready.container(session)[1]] = b"epoch 1\n"
    async with ready.database.transaction() as db:
        (row,) = await service.in_states(db, [State.RUNNING])
        assert await service.reclaim(db, row.id, row.revision, "reclaimed for team-b/x")
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 0, "over_quota": False}))
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "PENDING"
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})
    assert log.text == "epoch 1\n"


async def test_each_container_has_a_log_of_its_own_while_it_runs_and_after(ready: Cluster) -> None:
    session = await run(ready, replicas=2)
    for rank in (0, 1):
        ready.engine.output[f"session-{session['id']}-0-{rank}"] = f"rank {rank}\n".encode()

    async def log(**asked: int) -> str:
        answer = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a", **asked})
        assert answer.status_code == 200, answer.text
        return answer.text

    assert [await log(), await log(rank=0), await log(rank=1)] == ["rank 0\n", "rank 0\n", "rank 1\n"]
    told = await refused(ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a", "rank": 2}), 422)
    assert (told["where"], told["hint"]) == ("rank", "choose from 0 to 1")
    await delete(ready)
    await ready.settle()
    assert [await log(), await log(rank=1)] == ["rank 0\n", "rank 1\n"]


async def test_many_containers_share_what_is_kept_of_their_logs(ready: Cluster) -> None:
    session = await run(ready, replicas=8, gpu_milli=250)
    for rank in range(8):
        ready.engine.output[f"session-{session['id']}-0-{rank}"] = b"x" * 300_000 + str(rank).encode()
    await delete(ready)
    await ready.settle()
    for rank in range(8):
        asked: dict[str, str | int] = {"project": "team-a", "rank": rank}
        log = (await ready.admin.get(f"{V1}/sessions/demo/logs", params=asked)).text
        assert (len(log), log[-1]) == (128 * 1024, str(rank))
