"""Connections to agents, kept in many small pools: httpcore looks at each connection of a pool for each request.

Source: `AsyncConnectionPool._assign_requests_to_connections` of httpcore 1.0. With some 50 agents in one pool that was
a sixth of what the start of a session took.
"""

from __future__ import annotations

import ssl

import httpx

POOLS = 64
KEPT_CONNECTIONS = 200
"""Where a pool has more connections, in use or not, none is kept that nobody uses: httpcore counts them together.

So it is far more than one agent's requests at once and the logs that are followed there.
"""


class AgentPools(httpx.AsyncBaseTransport):
    """A transport in which all requests to one agent go by one pool, which few others use."""

    def __init__(self, context: ssl.SSLContext) -> None:
        """Prepare the pools; agents are inside the site, so no proxy of the environment stands before them."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
        self._pools = [httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits) for _ in range(POOLS)]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request by its agent's pool."""
        return await self._pools[hash(request.url.netloc) % POOLS].handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.aclose()
