"""Fixtures of health."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.cluster import Cluster, running_cluster


@pytest.fixture
async def closing_nothing(database_url: str) -> AsyncIterator[Cluster]:
    """A cluster of which no failing check closes a node."""
    async with running_cluster(database_url, health_closes=[]) as cluster:
        await cluster.add_node()
        yield cluster
