"""The control API on PostgreSQL, called in this process: an empty cluster, and one that is ready for sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import argon2
import httpx
import pytest
import structlog
from argon2.profiles import CHEAPEST
from sqlalchemy import event

from api.auth import passwords
from api.control.reconcilers import failures
from common.repair_protocol import CONTROLLER
from tests.api.cluster import Cluster, certified, running_cluster


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Write tracebacks as they are: drawing them with every local variable takes minutes."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.LogfmtRenderer()])


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "hasher", argon2.PasswordHasher.from_parameters(CHEAPEST))


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    async with running_cluster(database_url, pvc_root="/srv/shared", storages={"shared": "/srv/shared"}) as running:
        yield running


@pytest.fixture
async def audited(database_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster that keeps an audit log."""
    (tmp_path / "log").mkdir()
    (tmp_path / "key").write_text("a key of these tests")
    folders = {"audit_folder": tmp_path / "log", "audit_key": tmp_path / "key"}
    async with running_cluster(database_url, pvc_root="/srv/shared", **folders) as running:
        yield running


@pytest.fixture
async def ordering(database_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster whose controller takes orders, with an audit log."""
    (tmp_path / "log").mkdir()
    (tmp_path / "key").write_text("a key of these tests")
    folders = {"audit_folder": tmp_path / "log", "audit_key": tmp_path / "key"}
    async with running_cluster(database_url, controller=True, **folders) as running:
        yield running


@pytest.fixture
async def controller(ordering: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """The controller of that cluster, as the edge tells who calls."""
    async with ordering.client(**certified(CONTROLLER)) as client:
        yield client


@pytest.fixture
async def ready(cluster: Cluster) -> Cluster:
    """A cluster with a node of four GPUs, an image and a project that may use all of it."""
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    return cluster


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is tried again be due at once."""
    monkeypatch.setattr(failures, "RETRY_S", (0.0,))


@pytest.fixture
async def small(cluster: Cluster) -> Cluster:
    """A cluster with a node of one GPU, an image, and a project that may use four."""
    await cluster.add_node("worker1", 1)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    return cluster


@pytest.fixture
def statements(cluster: Cluster) -> Iterator[list[str]]:
    """The statements that the API sends to the database, as they come."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(cluster.database.engine.sync_engine, "before_cursor_execute", note)
    yield sent
    event.remove(cluster.database.engine.sync_engine, "before_cursor_execute", note)
