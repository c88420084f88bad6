"""Endpoints are tested on a cluster that keeps an audit log, as a site does."""

from __future__ import annotations

import pytest

from tests.api.cluster import Cluster


@pytest.fixture
def cluster(audited: Cluster) -> Cluster:
    """A cluster that keeps an audit log."""
    return audited
