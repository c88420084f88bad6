"""Browsers that are signed in, as the pages of the console know them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.api.cluster import Cluster, sign_in

PAGE = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
async def browser(ready: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """A browser in which the administrator is signed in, on a cluster that is ready for sessions."""
    async with ready.client(**PAGE) as client:
        await sign_in(client, "admin")
        yield client
