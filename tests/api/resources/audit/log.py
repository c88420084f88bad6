"""What tests of the audit log look at: its lines, as the API tells them, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.api.cluster import V1, Cluster, ok

PROJECT = {"name": "vision", "quota_milli": 0, "period": {"ends_at": None}}


def file_of(cluster: Cluster) -> Path:
    """The one file of the log."""
    (path,) = Path(str(cluster.settings.audit_folder)).glob("*.log")
    return path


async def lines(cluster: Cluster, **query: Any) -> list[dict[str, Any]]:
    """The log, newest first, without the line of this very look at it."""
    await cluster.settle()
    return list(await ok(cluster.admin.get(f"{V1}/audit", params=query)))


async def last(cluster: Cluster, **query: Any) -> dict[str, Any]:
    return (await lines(cluster, **query))[0]
