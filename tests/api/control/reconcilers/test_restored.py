"""A database that was restored: what nodes run is asked before anything is given away, or launched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from api.control import manager
from api.control.manager import Manager
from api.control.reconcilers import observe
from api.endpoints.app import set_up
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import OF_LEADERS, pass_time, run
from tests.installed import TEMPLATE, InstalledDatabase
from tests.postgresql import connect, new_database

pytestmark = pytest.mark.anyio

CONNECTED = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = ANY(%s)"


class Backup:
    """A backup of a cluster's database, as it was when this was made."""

    def __init__(self, cluster: Cluster, server: Path) -> None:
        self._server, self._name = server, str(cluster.database.engine.url.database)
        self._do(f"CREATE DATABASE {self._name}_dump TEMPLATE {self._name}")

    def restore(self) -> None:
        """Change names, as `penstock backup restore` does; the database before is kept under another one."""
        self._do(
            f"ALTER DATABASE {self._name} RENAME TO {self._name}_before",
            f"ALTER DATABASE {self._name}_dump RENAME TO {self._name}",
        )

    def give_back(self) -> None:
        """Change names again: the database of before is there once more, on the same server."""
        self._do(
            f"ALTER DATABASE {self._name} RENAME TO {self._name}_dump",
            f"ALTER DATABASE {self._name}_before RENAME TO {self._name}",
        )

    def _do(self, *statements: str) -> None:
        with closing(connect(self._server, "postgres")) as connection:
            for statement in statements:
                try:
                    self._do_alone(connection, statement)
                except psycopg.errors.ObjectInUse:  # by one whose connection was under way when the others were ended
                    self._do_alone(connection, statement)

    def _do_alone(self, connection: psycopg.Connection, statement: str) -> None:
        connection.execute(CONNECTED, [[self._name, f"{self._name}_dump", f"{self._name}_before"]])
        connection.execute(statement)


@pytest.fixture
def own_database_url(_installed_database: InstalledDatabase, postgresql_server: Path) -> str:
    """A database that no other test uses."""
    _installed_database.fresh()
    return new_database(postgresql_server, TEMPLATE)


@pytest.fixture
async def site(own_database_url: str) -> AsyncIterator[Cluster]:
    """A cluster on a database of its own, with a node of four GPUs, an image and a project that may use all of it."""
    async with running_cluster(own_database_url) as cluster:
        await cluster.add_node()
        await cluster.add_image()
        await cluster.add_project("team-a", 4000)
        yield cluster


@pytest.fixture
def server(postgresql_server: Path) -> Path:
    return postgresql_server


def begin_again(cluster: Cluster) -> None:
    """Let the process of the API be a new one."""
    set_up(cluster.app, cluster.settings, cluster.database, cluster.engine, cluster.clock)


def launched(cluster: Cluster) -> list[str]:
    return [node for call, node, _ in cluster.engine.calls if call == "launch"]


async def test_a_node_is_given_away_when_it_has_said_what_it_runs(site: Cluster, server: Path) -> None:
    """Its GPUs are those of a session that the restored database does not know."""
    backup = Backup(site, server)
    await run(site, "forgotten", gpu_milli=4000)
    backup.restore()
    begin_again(site)
    await site.submit("next", gpu_milli=1000)
    await site.settle()
    assert (await site.session("next"))["state"] == "PENDING"
    await refused(site.admin.delete(f"{V1}/nodes/worker1/unknown-containers"), 409)
    await site.heartbeat()
    await site.settle()
    assert (await site.session("next"))["state"] == "PENDING"
    await ok(site.admin.delete(f"{V1}/nodes/worker1/unknown-containers"))
    await site.heartbeat()
    await site.settle()
    assert (await site.session("next"))["state"] == "RUNNING"


async def test_what_was_said_before_the_restore_opens_no_node(site: Cluster, server: Path) -> None:
    """A process that goes on has heard it, and had not written it yet; more was launched since."""
    backup = Backup(site, server)
    await run(site, "forgotten", gpu_milli=4000)
    await site.heartbeat(containers=[])
    backup.restore()
    await site.submit("next", gpu_milli=1000)
    await site.settle()
    assert (await site.session("next"))["state"] == "PENDING"
    await site.heartbeat()
    await site.settle()
    assert (await site.session("next"))["state"] == "PENDING"
    assert (await ok(site.admin.get(f"{V1}/nodes/worker1")))["unknown_containers"] == 1


async def test_a_process_that_goes_on_opens_nodes_whose_agents_say_nothing_new(
    site: Cluster, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "UNDER_WAY", timedelta())
    await site.heartbeat()
    await site.settle()
    Backup(site, server).restore()
    for _ in range(2):  # the first one tells that the database is another one
        await site.heartbeat()
        await site.settle()
    await run(site)


async def test_one_whose_containers_are_all_known_is_given_away_at_its_next_report(site: Cluster, server: Path) -> None:
    backup = Backup(site, server)
    backup.restore()
    begin_again(site)
    await site.submit("demo")
    await site.settle()
    assert (await site.session("demo"))["state"] == "PENDING"
    await site.heartbeat()
    await site.settle()
    assert (await site.session("demo"))["state"] == "RUNNING"


async def test_only_nodes_that_have_said_so_are(site: Cluster, server: Path) -> None:
    await site.add_node("worker2")
    backup = Backup(site, server)
    backup.restore()
    begin_again(site)
    await site.submit("demo")
    await site.heartbeat("worker2")
    await site.settle()
    assert (await site.session("demo"))["node"] == "worker2"


async def test_nothing_is_launched_where_that_is_not_known(site: Cluster, server: Path) -> None:
    """It had got its places when the backup was taken, and ended after that; somebody else has its GPUs by now."""
    await site.submit("placed", gpu_milli=4000)
    await site.manager.loop.run()
    backup = Backup(site, server)
    await site.settle()
    await ok(site.admin.delete(f"{V1}/sessions/placed", params={"project": "team-a"}))
    await site.settle()
    await run(site, "forgotten", gpu_milli=4000)
    backup.restore()
    begin_again(site)
    site.engine.calls.clear()
    await site.settle()
    assert (launched(site), (await site.session("placed"))["state"]) == ([], "SCHEDULED")
    await site.heartbeat()
    await site.settle()
    found = await site.session("placed")
    assert (launched(site), found["reason"]) == ([], "worker1 runs containers that hold its place; it is tried again")
    pass_time(site, site.settings.launch_limit_s + 1)
    await site.settle()
    assert (launched(site), (await site.session("placed"))["state"]) == ([], "PENDING")


async def test_what_had_its_places_is_launched_once_they_are_known_to_be_free(site: Cluster, server: Path) -> None:
    await site.submit("placed", gpu_milli=4000)
    await site.manager.loop.run()
    backup = Backup(site, server)
    backup.restore()
    begin_again(site)
    await site.heartbeat()
    await site.settle()
    assert (await site.session("placed"))["state"] == "RUNNING"


async def test_one_that_is_placed_where_nobody_reports_waits_again(site: Cluster, server: Path) -> None:
    await site.submit("placed")
    await site.manager.loop.run()
    backup = Backup(site, server)
    backup.restore()
    begin_again(site)
    await site.settle()
    pass_time(site, site.settings.launch_limit_s + 1)
    await site.settle()
    assert (await site.session("placed"))["state"] in ("TERMINATING", "PENDING")


async def test_another_leader_or_process_asks_for_nothing_where_the_database_is_the_same(site: Cluster) -> None:
    begin_again(site)
    await run(site)


async def test_what_waited_when_the_backup_was_taken_and_runs_goes_on(site: Cluster, server: Path) -> None:
    await site.submit("demo", gpu_milli=1500)
    backup = Backup(site, server)
    await site.settle()
    before = await site.session("demo")
    backup.restore()
    begin_again(site)
    assert (await site.session("demo"))["state"] == "PENDING"
    site.engine.calls.clear()
    await site.heartbeat()
    await site.settle()
    found = await site.session("demo")
    assert (found["state"], found["attempt"], found["gpus"]) == ("RUNNING", 0, before["gpus"])
    assert launched(site) == []


async def test_so_does_one_of_which_the_backup_knows_an_earlier_attempt(site: Cluster, server: Path) -> None:
    await site.submit("demo")
    backup = Backup(site, server)
    await site.settle()
    session = await site.session("demo")
    state = site.engine.containers.pop(site.container(session))
    again = f"session-{session['id']}-2-0"
    site.engine.containers["worker1", again] = state.model_copy(update={"id": again})
    backup.restore()
    begin_again(site)
    await site.heartbeat()
    await site.settle()
    found = await site.session("demo")
    assert (found["state"], found["attempt"]) == ("RUNNING", 2)


async def test_it_does_not_where_others_have_its_gpus(site: Cluster, server: Path) -> None:
    """The backup knows of somebody's places there, who has ended since."""
    await site.submit("demo", gpu_milli=4000)
    await site.submit("placed", gpu_milli=4000, interactive=True)
    await site.manager.loop.run()
    assert (await site.session("placed"))["state"] == "SCHEDULED"
    backup = Backup(site, server)
    await site.settle()
    await ok(site.admin.delete(f"{V1}/sessions/placed", params={"project": "team-a"}))
    await site.settle()
    assert (await site.session("demo"))["state"] == "RUNNING"
    backup.restore()
    begin_again(site)
    await site.heartbeat()
    await site.manager.observe()
    assert (await site.session("demo"))["state"] == "PENDING"
    assert (await site.session("placed"))["state"] in ("SCHEDULED", "PREPARING")


async def test_a_gang_whose_network_the_backup_does_not_know_starts_again(site: Cluster, server: Path) -> None:
    await site.submit("demo", gpu_milli=1000, replicas=2)
    backup = Backup(site, server)
    await site.settle()
    backup.restore()
    begin_again(site)
    for _ in range(2):
        await site.heartbeat()
        await site.settle()
    await site.heartbeat()
    await site.settle()
    terminated = {id_ for call, _, id_ in site.engine.calls if call == "terminate"}
    assert len(terminated) == 2
    assert (await site.session("demo"))["state"] == "RUNNING"


async def test_a_process_whose_database_was_exchanged_starts_over(
    site: Cluster, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it remembers is of another one; a connection that was lost says nothing of that."""
    monkeypatch.setattr(manager, "TICK_S", 0.05)
    exchanged = asyncio.Event()
    heartbeats = site.app.state.heartbeats
    process = Manager(site.database, site.engine, heartbeats, site.settings, start_over=exchanged.set)
    running = asyncio.create_task(process.run())
    await until_led(site)
    backup = Backup(site, server)  # that ends its connections, too
    await until_led(site)
    assert not exchanged.is_set()
    backup.restore()
    await asyncio.wait_for(exchanged.wait(), 60)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_what_was_reported_to_a_database_counts_no_more_when_it_comes_back(
    site: Cluster, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "TICK_S", 0.05)
    assert await reported(site) > 0
    backup = Backup(site, server)
    backup.restore()
    exchanged = asyncio.Event()
    process = Manager(site.database, site.engine, site.app.state.heartbeats, site.settings, start_over=exchanged.set)
    running = asyncio.create_task(process.run())
    await until_led(site)
    backup.give_back()
    await asyncio.wait_for(exchanged.wait(), 60)
    assert await reported(site) == 0
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def reported(cluster: Cluster) -> int:
    """How many nodes have reported to this database."""
    async with cluster.database.reading() as db:
        found = await db.scalar(text("SELECT count(*) FROM nodes WHERE reported_to = this_database()"))
    return int(found or 0)


async def until_led(cluster: Cluster) -> None:
    for _ in range(200):
        async with cluster.database.reading() as db:
            if await db.scalar(text(f"SELECT count(*) {OF_LEADERS}")):
                return
        await asyncio.sleep(0.05)
    pytest.fail("nobody leads")
