"""Connections to agents: all requests to one go by one pool, and few others go by it."""

from __future__ import annotations

import ssl
from collections import Counter

import httpx
import pytest

from api.engine.pools import POOLS, AgentPools

pytestmark = pytest.mark.anyio

AGENTS = [f"10.0.{number // 250}.{number % 250}:9440" for number in range(1000)]


class Recorded(httpx.AsyncBaseTransport):
    """A pool that answers by itself, and notes the agents of its requests and whether it was closed."""

    def __init__(self, *_: object, **settings: object) -> None:
        self.agents: list[bytes] = []
        self.settings = settings
        self.closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.agents.append(request.url.netloc)
        return httpx.Response(204)

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """The pools that are made from now on."""
    made: list[Recorded] = []

    def make(*words: object, **settings: object) -> Recorded:
        made.append(Recorded(*words, **settings))
        return made[-1]

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", make)
    return made


async def test_an_agent_has_one_pool_and_many_pools_are_used(pools: list[Recorded]) -> None:
    async with httpx.AsyncClient(transport=AgentPools(ssl.create_default_context())) as client:
        for agent in AGENTS * 2:
            await client.get(f"https://{agent}/health")
    assert Counter(agent for pool in pools for agent in set(pool.agents)) == {agent.encode(): 1 for agent in AGENTS}
    assert len(pools) == POOLS
    assert max(len(set(pool.agents)) for pool in pools) < 4 * len(AGENTS) / POOLS


async def test_all_pools_are_closed_with_it(pools: list[Recorded]) -> None:
    async with httpx.AsyncClient(transport=AgentPools(ssl.create_default_context())):
        assert not any(pool.closed for pool in pools)
    assert all(pool.closed for pool in pools)


async def test_no_pool_looks_for_a_proxy_in_the_environment(pools: list[Recorded]) -> None:
    AgentPools(ssl.create_default_context())
    assert {pool.settings["trust_env"] for pool in pools} == {False}
