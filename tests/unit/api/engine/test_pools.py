"""Connections to agents: one agent's are kept for its next requests, however many go on beside, in a pool of few."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import pytest

from api.engine.pools import POOLS, AgentPools

pytestmark = pytest.mark.anyio
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"


class Agent:
    """Answers each request after a moment, and a stream never to its end; counts its connections."""

    url = ""
    opened = still_open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.still_open += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.02)
                writer.write(STREAM if b"/logs" in head else ANSWER)
        self.still_open -= 1
        writer.close()


@asynccontextmanager
async def agent(host: str = "127.0.0.1") -> AsyncIterator[Agent]:
    running = Agent()
    async with await asyncio.start_server(running.serve, host, 0) as server:
        running.url = "http://{}:{}".format(f"[{host}]" if ":" in host else host, server.sockets[0].getsockname()[1])
        yield running


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=AgentPools(ssl.create_default_context()), trust_env=False) as calling:
        yield calling


async def test_many_requests_at_once_keep_their_connections_for_the_next_ones(client: httpx.AsyncClient) -> None:
    async with agent() as worker:
        for _ in range(5):
            answers = await asyncio.gather(*(client.get(f"{worker.url}/health") for _ in range(20)))
            assert all(answer.is_success for answer in answers)
        assert worker.opened <= 30, "about as many as there are requests at once"
        await client.aclose()


async def test_logs_that_are_followed_leave_the_connections_of_others_alone(client: httpx.AsyncClient) -> None:
    async with agent() as worker, AsyncExitStack() as followed:
        for _ in range(10):
            await followed.enter_async_context(client.stream("GET", f"{worker.url}/logs"))
        for _ in range(20):
            await client.get(f"{worker.url}/health")
        assert worker.opened == 11
        await followed.aclose()
        await client.aclose()


async def test_at_the_end_every_agent_s_connections_are_closed(client: httpx.AsyncClient) -> None:
    async with agent() as one, agent("::1") as other:
        for worker in (one, other):
            assert (await client.get(f"{worker.url}/health")).is_success
        assert (one.still_open, other.still_open) == (1, 1)
        await client.aclose()
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not one.still_open + other.still_open:
                return
        pytest.fail("a connection stays open")


class Pool(httpx.AsyncBaseTransport):
    """A pool that answers by itself, and notes whom it was to call."""

    def __init__(self) -> None:
        self.agents: list[bytes] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.agents.append(request.url.netloc)
        return httpx.Response(204)


async def test_an_agent_has_one_pool_which_few_others_share(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[Pool] = []

    def make(**_: object) -> Pool:
        pools.append(Pool())
        return pools[-1]

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", make)
    agents = [f"10.0.{number // 250}.{number % 250}:9440" for number in range(1000)]
    async with httpx.AsyncClient(transport=AgentPools(ssl.create_default_context())) as calling:
        for worker in agents * 2:
            await calling.get(f"https://{worker}/health")
    assert Counter(worker for pool in pools for worker in set(pool.agents)) == {worker.encode(): 1 for worker in agents}
    assert max(len(set(pool.agents)) for pool in pools) < 4 * len(agents) / POOLS
