"""A control API without sockets and machines: the application called in this process, on a database of its own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import AsyncAdaptedQueuePool

from api.auth.policy import UserRole
from api.clock import Clock
from api.console.app import add_console
from api.control.manager import Manager
from api.database import Database
from api.endpoints.app import create_app, set_up
from api.resources.users import service as users
from api.resources.users.schemas import UserRequest
from api.settings import Settings
from common import problem
from common.check_protocol import CheckReport
from common.protocol import (
    HEARTBEAT_PATH,
    PROTOCOL,
    PROTOCOL_HEADER,
    TIME_HEADER,
    ContainerState,
    ContainerStatus,
)
from tests.fakes.engine import FakeEngine
from tests.fakes.heartbeats import beat
from tests.installed import ADMIN_KEY, PASSWORD, kept, lasts

V1 = "/api/v1"
REGISTRIES = ("reservoir:5000", "registry:5000", ".".join(("docker", "io")))
"""Where images of tests may come from: registries of the site, and the one that an engine means where none is named."""


def certified(name: str) -> dict[str, str]:
    """Return what the edge says of a certificate."""
    return {"X-Client-Verify": "SUCCESS", "X-Client-Name": name}


@dataclass
class Cluster:
    """An application under test with its database, its engine and a way to call it as anybody."""

    app: FastAPI
    database: Database
    engine: FakeEngine
    settings: Settings
    clock: SlowClock
    admin: httpx.AsyncClient = field(init=False)
    sequences: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.admin = self.client(ADMIN_KEY)

    @property
    def manager(self) -> Manager:
        manager: Manager = self.app.state.manager
        return manager

    async def settle(self) -> None:
        await settle(self.manager)

    def client(self, key: str | None = None, **headers: str) -> httpx.AsyncClient:
        if key:
            headers["Authorization"] = f"Bearer {key}"
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="https://penstock", headers=headers)

    async def user(self, name: str, role: UserRole = UserRole.MEMBER) -> httpx.AsyncClient:
        """Create a user and return a client with a key of that user."""
        async with self.database.transaction() as db:
            await users.create(db, UserRequest(name=name, password=PASSWORD, role=role))
        async with self.client() as guest:
            await sign_in(guest, name)
            key = (await ok(guest.post(f"{V1}/api-keys", json={"name": "tests"})))["key"]
        return self.client(key)

    async def heartbeat(
        self,
        name: str = "worker1",
        gpus: int = 4,
        containers: list[ContainerState] | None = None,
        *,
        unready: str = "",
        missing_storages: Mapping[str, str] = MappingProxyType({}),
        checks: Sequence[CheckReport] = (),
        ahead_s: float | None = None,
        protocol: int = PROTOCOL,
    ) -> httpx.Response:
        """Report as a node's agent; without `containers` report those of the engine.

        With `ahead_s` the agent tells its time, by a clock that is so far ahead. Another `protocol` is another boot.
        """
        told = {} if ahead_s is None else {TIME_HEADER: str(time.time() + ahead_s)}
        told[PROTOCOL_HEADER] = str(protocol)
        if containers is None:
            containers = [state for (node, _), state in self.engine.containers.items() if node == name]
        report = beat(
            next(self.sequences),
            f"boot-{protocol}",
            name=name,
            gpus=gpus,
            containers=containers,
            unready=unready,
            missing_storages=missing_storages,
            checks=checks,
        )
        async with self.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": name}, **told) as agent:
            return await agent.post(HEARTBEAT_PATH, json=report.model_dump(mode="json"))

    async def add_node(self, name: str = "worker1", gpus: int = 4) -> None:
        assert (await self.heartbeat(name, gpus)).status_code == 200
        await self.settle()

    async def add_image(self) -> None:
        body = {"name": "python", "tag": "3.11", "reference": "reservoir:5000/penstock/python:3.11"}
        await ok(self.admin.post(f"{V1}/images", json=body))

    async def add_project(self, name: str = "team-a", quota_milli: int = 1000, *members: str) -> None:
        body = {"name": name, "quota_milli": quota_milli, "members": list(members), "period": {"ends_at": None}}
        await ok(self.admin.post(f"{V1}/projects", json=body))

    async def submit(self, name: str, gpu_milli: int = 500, project: str = "team-a", **more: Any) -> dict[str, Any]:
        body = {"name": name, "project": project, "image": "python", "gpu_milli": gpu_milli, **more}
        return dict(await ok(self.admin.post(f"{V1}/sessions", json=body)))

    async def session(self, name: str, project: str = "team-a") -> dict[str, Any]:
        return dict(await ok(self.admin.get(f"{V1}/sessions/{name}", params={"project": project})))

    async def states(self, project: str = "team-a") -> dict[str, str]:
        rows = await ok(self.admin.get(f"{V1}/sessions", params={"project": project, "all": True}))
        return {row["name"]: row["state"] for row in rows}

    def container(self, session: dict[str, Any]) -> tuple[str, str]:
        return (session["node"], f"session-{session['id']}-0-0")

    def change_container(self, session: dict[str, Any], **changes: Any) -> None:
        """Let a container of the engine come to another state."""
        key = self.container(session)
        self.engine.containers[key] = self.engine.containers[key].model_copy(update=changes)

    def exit_container(self, session: dict[str, Any], code: int) -> None:
        self.change_container(session, status=ContainerStatus.EXITED, exit_code=code)


async def settle(manager: Manager) -> None:
    """Run every reconciler until nothing is left to do at once."""
    await manager.observe()
    while await manager.reconcile() or manager.operations:
        await asyncio.gather(*manager.operations.values())


async def sign_in(guest: httpx.AsyncClient, name: str, password: str = PASSWORD) -> dict[str, Any]:
    """Sign in as our pages do: what they change later carries the login's token."""
    login = dict(await ok(guest.post(f"{V1}/auth/login", json={"name": name, "password": password})))
    guest.headers["X-CSRF-Token"] = login["csrf_token"]
    return login


async def ok(answer: Any) -> Any:
    """Return the body of an answer that must be a success."""
    response: httpx.Response = await answer
    assert response.is_success, f"{response.status_code} {response.text}"
    return response.json()


async def refused(answer: Any, status: int) -> dict[str, str]:
    """Return the one error of an answer that must be a refusal."""
    response: httpx.Response = await answer
    assert response.status_code == status, f"{response.status_code} {response.text}"
    (told,) = problems(response)
    return told


def problems(response: httpx.Response) -> list[dict[str, str]]:
    """Return the errors of an answer that must be a refusal in the one form that they have."""
    assert response.headers["Content-Type"] == problem.MEDIA_TYPE
    assert response.json()["request_id"] == response.headers["X-Request-Id"] != ""
    error = problem.read(response.status_code, response.content)
    assert error, response.text
    return [asdict(one) for one in error.problems]


_applications: list[FastAPI] = []
_databases: dict[str, Database] = {}
"""By their URLs. A new one would compile every statement again: that takes longer than to run them."""
FEW = 10
"""Connections of a test that are kept for the next ones: where there are more, somebody may have waited for one."""


class SlowClock(Clock):
    """The clock of the reconcilers: time that passes there may be `ahead` of ours, and `passed` is what they count."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.passed = 0.0

    def now(self) -> datetime:
        return super().now() + self.ahead

    def both(self) -> tuple[datetime, float]:
        return self.now(), time.monotonic() + self.ahead.total_seconds()

    def monotonic(self) -> float:
        return self.passed


def application(settings: Settings, database: Database, engine: FakeEngine, clock: Clock) -> FastAPI:
    """Return the application, new in all but its routes: to make those takes longer than most tests."""
    if not _applications:
        _applications.append(create_app(settings, database, engine, reconcile=False, pages=add_console))
    set_up(_applications[0], settings, database, engine, clock)
    return _applications[0]


@asynccontextmanager
async def running_cluster(
    database_url: str, clock: SlowClock | None = None, /, **changes: Any
) -> AsyncIterator[Cluster]:
    """Give an application on a database with an administrator; its reconcilers run when a test says so."""
    changes = {"registries": REGISTRIES} | changes
    settings = Settings(database_url=database_url, trust_client_headers=True, **changes)
    database = _databases.setdefault(
        database_url, Database(kept(database_url) if lasts(database_url) else database_url)
    )
    engine, clock = FakeEngine(), clock or SlowClock()
    app = application(settings, database, engine, clock)
    cluster = Cluster(app, database, engine, settings, clock)
    async with cluster.admin:
        yield cluster
    if not (lasts(database_url) and is_at_rest(database)):
        await database.close()


def is_at_rest(database: Database) -> bool:
    """Return whether no connection is in use, and there were never so many that somebody may have waited for one."""
    pool = database.engine.pool
    assert isinstance(pool, AsyncAdaptedQueuePool)
    return not pool.checkedout() and pool.checkedin() <= FEW
