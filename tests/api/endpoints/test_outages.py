"""A database that is full, read-only, crowded, stopped or silent: each is told as what it is, by /health too."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from api.endpoints import outages
from api.resources.notices.service import Board
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster, sign_in
from tests.api.console.conftest import PAGE
from tests.installed import InstalledDatabase
from tests.postgresql import OF_TESTS, connect, new_folder, running_server, start, stop
from tests.role_modules import role_module

pytestmark = pytest.mark.anyio

PROJECT = {"name": "team-a", "quota_milli": 1000, "period": {"ends_at": None}}
HEALTH = ("/health", f"{V1}/health")
FULL = "the database has no room: its disk is full"
CROWDED = OF_TESTS | {"max_connections": "12"}


@contextmanager
def server_on_a_small_disk() -> Iterator[Path]:
    """Run a server whose data lie on a file system of their own."""
    folder = new_folder()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192m", "penstock-tests", folder], check=True)
    try:
        start(folder, OF_TESTS, os.getpid())
        yield folder
    finally:
        stop(folder)
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def fill(disk: Path) -> Path:
    """Write a file until the disk is full, and return it."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12) * 16)
    with (disk / "rest").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return disk / "filler"


def evidence_of(folder: Path) -> dict[str, Any]:
    """Return what the node of a database says of it."""

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            words,
            env=os.environ | {"PGHOST": str(folder), "PGUSER": "tests"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    found: dict[str, Any] = role_module("evidence/library/node_evidence.py").database("postgres", run)
    return found


@asynccontextmanager
async def cluster_on(folder: Path) -> AsyncIterator[Cluster]:
    """Give an application on a server of its own."""
    database = InstalledDatabase(folder)
    try:
        async with running_cluster(await asyncio.to_thread(database.fresh)) as running:
            yield running
    finally:
        database.close()


@contextmanager
def stopped(folder: Path) -> Iterator[None]:
    """Let every process of a server stand still."""
    server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    processes = [server, *map(int, children)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


async def test_a_full_disk_is_told_until_there_is_room() -> None:
    with server_on_a_small_disk() as folder:
        async with cluster_on(folder) as cluster:
            assert (await ok(cluster.admin.get("/health")))["status"] == "healthy"
            filler = fill(folder)
            problem = await refused(cluster.admin.post(f"{V1}/projects", json=PROJECT), 503)
            assert (problem["reason"], "room" in problem["hint"]) == (FULL, True)
            for path in HEALTH:
                assert (await refused(cluster.admin.get(path), 503))["reason"] == FULL
            found = evidence_of(folder)
            assert (found["ok"], "No space left on device" in found["detail"]) == (False, True)
            await ok(cluster.admin.get(f"{V1}/projects"))
            filler.unlink()
            for path in HEALTH:
                await ok(cluster.admin.get(path))
            assert evidence_of(folder) == {"ok": True, "detail": ""}
            await ok(cluster.admin.post(f"{V1}/projects", json=PROJECT))


async def test_a_database_that_stands_still_is_told_soon_and_forgotten_when_it_goes_on() -> None:
    with running_server(OF_TESTS) as folder:
        async with cluster_on(folder) as cluster:
            await ok(cluster.admin.get("/health"))
            with stopped(folder):
                for path in HEALTH:
                    asked = time.monotonic()
                    problem = await refused(cluster.admin.get(path), 503)
                    assert problem["reason"] == "the database does not answer"
                    assert time.monotonic() - asked < 10 * outages.ANSWER_S
            for path in HEALTH:
                await ok(cluster.admin.get(path))


async def test_a_database_that_is_read_only_crowded_or_stopped_is_told_as_that() -> None:
    with running_server(CROWDED) as folder:
        async with cluster_on(folder) as cluster:
            with closing(connect(folder, "postgres")) as other:
                other.execute("ALTER SYSTEM SET default_transaction_read_only = on")
                other.execute("SELECT pg_reload_conf()")
                reason = "the database takes no changes: it is read-only"
                await _until_unhealthy(cluster, reason)
                answer = cluster.admin.post(f"{V1}/projects", json=PROJECT)
                assert (await refused(answer, 503))["reason"] == reason
                other.execute("SET default_transaction_read_only = off")
                other.execute("ALTER SYSTEM RESET default_transaction_read_only")
                other.execute("SELECT pg_reload_conf()")
            await cluster.database.close()
            with _all_connections(folder):
                reason = (await refused(cluster.admin.get("/health"), 503))["reason"]
                assert reason == "the database takes no more connections"
            async with cluster.database.reading() as db:
                backend = await db.scalar(text("SELECT pg_backend_pid()"))
                with closing(connect(folder, "postgres")) as other:
                    other.execute("SELECT pg_terminate_backend(%s)", [backend])
                with pytest.raises(Exception, match="terminating connection") as ended:
                    await db.execute(text("SELECT 1"))
            assert outages.reason_and_hint(ended.value)[0] == "the database is starting or stopping"


async def test_pages_say_that_the_database_is_away_and_go_on_with_what_was_told() -> None:
    with running_server(CROWDED) as folder:
        async with cluster_on(folder) as cluster, cluster.client(**PAGE) as browser:
            board: Board = cluster.app.state.notice_board
            await sign_in(browser, "admin")
            await ok(cluster.admin.post(f"{V1}/notices", json={"text": "tomorrow"}))
            assert [each.text for each in await board.shown()] == ["tomorrow"]
            await cluster.database.close()
            with _all_connections(folder):
                board.forget()
                page = await browser.get("/nodes")
                assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
                assert "the database takes no more connections" in page.text
                board.forget()
                assert [each.text for each in await board.shown()] == ["tomorrow"]


async def _until_unhealthy(cluster: Cluster, reason: str) -> None:
    deadline = time.monotonic() + 60
    while (answer := await cluster.admin.get("/health")).is_success:
        assert time.monotonic() < deadline
    assert answer.json()["errors"][0]["detail"] == reason


@contextmanager
def _all_connections(folder: Path) -> Iterator[None]:
    """Hold every connection of a server but that of the database's keeper."""
    taken: list[psycopg.Connection] = []
    deadline = time.monotonic() + 60
    try:
        # one that was closed is free when its process at the server has ended
        while len(taken) < int(CROWDED["max_connections"]) - 1:
            assert time.monotonic() < deadline, taken
            with suppress(psycopg.OperationalError):
                taken.append(connect(folder, "postgres"))
        yield
    finally:
        for connection in taken:
            connection.close()
