"""What the leader looks at: its database, its machine, and whether agents report."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from api.clock import now
from api.control import ldap_check
from api.control.health_check import ALL_AGENTS_S, HealthCheck
from api.tables.health import HealthAlert
from common.checks import Check, CheckState
from common.protocol import ContainerState, ContainerStatus
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.integration.agent.conftest import Authority, make_authority

pytestmark = pytest.mark.anyio


async def passes(cluster: Cluster, seconds: int) -> None:
    """Let time pass for the leader, second by second, and what is due be done."""
    for _ in range(seconds):
        cluster.clock.passed += 1
        cluster.clock.ahead += timedelta(seconds=1)
        await cluster.settle()


async def checks(cluster: Cluster, node: str) -> dict[str, dict[str, Any]]:
    found = await ok(cluster.admin.get(f"{V1}/health/checks?node={node}"))
    return {each["check"]: each for each in found}


async def test_the_site_itself_is_looked_at(ready: Cluster) -> None:
    await passes(ready, 12)
    found = await checks(ready, "")
    assert found.keys() == {"database", "disk", "memory", "scheduler"}
    assert found["database"]["state"] == "ok"
    assert "connections are in use" in found["database"]["evidence"]


async def test_a_directory_that_does_not_answer_is_told(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes connections and says nothing keeps the site's other checks waiting for a short time only."""
    monkeypatch.setattr(ldap_check, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ldaps://127.0.0.1:{silent.getsockname()[1]}"
        async with running_cluster(database_url, ldap_url=url, ldap_user_dn="uid={name},dc=example") as cluster:
            cluster.clock.passed += cluster.settings.health_interval_s
            await cluster.settle()
            found = await checks(cluster, "")
            silent.close()
    assert (found["directory"]["state"], found["directory"]["evidence"]) == (
        "fail",
        f"no answer from {url} within 0.1 s",
    )


async def test_an_agent_that_is_silent_is_seen_before_its_node_is_lost(ready: Cluster) -> None:
    for _ in range(3):
        await passes(ready, 5)
        await ready.heartbeat()
        await ready.settle()
    # time of the tests runs ahead of the heartbeats' own
    ready.clock.ahead = timedelta()
    await passes(ready, 4)
    assert (await checks(ready, "worker1"))["agent"]["state"] == "ok"
    seconds = 4
    while (await checks(ready, "worker1"))["agent"]["state"] == "ok":
        await passes(ready, 1)
        seconds += 1
    assert seconds <= 15
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["state"] == "ready"
    found = (await checks(ready, "worker1"))["agent"]
    assert found["evidence"].startswith("silent since 20")
    assert found["repair"] == "5-H2"
    await ready.heartbeat()
    ready.clock.ahead = timedelta()
    await passes(ready, 3)
    assert (await checks(ready, "worker1"))["agent"]["state"] == "ok"


async def test_unknown_containers_are_told_while_they_run(ready: Cluster) -> None:
    """As after a restore: their node is ready and takes nothing."""
    await passes(ready, 3)
    assert checks_of_leader(await checks(ready, "worker1")) == {"agent": "ok"}
    unknown = ContainerState(id="session-0-0", session_id="none", status=ContainerStatus.RUNNING)
    await ready.heartbeat(containers=[unknown])
    await passes(ready, 3)
    found = await checks(ready, "worker1")
    assert checks_of_leader(found) == {"agent": "ok", "containers": "fail"}
    assert (
        found["containers"]["evidence"] == "runs 1 containers of sessions that the database does not know: session-0-0"
    )
    assert found["containers"]["hint"] == (
        "the node takes nothing new until they are gone; `penstock node end-unknown worker1` ends them"
    )
    await ready.heartbeat(containers=[])
    await passes(ready, 3)
    assert checks_of_leader(await checks(ready, "worker1")) == {"agent": "ok"}


def checks_of_leader(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {check: found[check]["state"] for check in ("agent", "containers") if check in found}


async def test_where_all_agents_report_no_look_asks_the_database(ready: Cluster, statements: list[str]) -> None:
    health = HealthCheck(ready.database, ready.settings, ready.clock)
    await health.look(silent=False)
    statements.clear()
    ready.clock.passed += 2
    await health.look(silent=False)
    assert statements == []
    await ready.add_node("worker2")
    ready.clock.passed += ALL_AGENTS_S
    await health.look(silent=False)
    assert (await checks(ready, "worker2"))["agent"]["state"] == "ok"


async def test_a_look_reads_no_whole_nodes(ready: Cluster, statements: list[str]) -> None:
    """On a large site one agent or another is late at any time, and all are looked at every other second."""
    health = HealthCheck(ready.database, ready.settings, ready.clock)
    await health.look()
    ready.clock.passed += 2
    statements.clear()
    await health.look()
    assert len(statements) == 1
    assert "nodes.last_seen" in statements[0]
    assert "nodes.interfaces" not in statements[0]


async def test_after_a_pause_of_ours_silence_says_nothing(ready: Cluster) -> None:
    await passes(ready, 4)
    ready.clock.passed += 60
    ready.clock.ahead += timedelta(seconds=60)
    await passes(ready, 5)
    assert (await checks(ready, "worker1"))["agent"]["state"] == "ok"


@pytest.mark.parametrize("pauses", [True, False], ids=["a pause", "a new leader"])
async def test_an_agent_that_is_silent_stays_so_until_it_reports(ready: Cluster, pauses: bool) -> None:
    await ready.heartbeat()
    await passes(ready, 3)
    assert (await checks(ready, "worker1"))["agent"]["state"] == "ok"
    while (await checks(ready, "worker1"))["agent"]["state"] == "ok":
        await passes(ready, 1)
    if pauses:
        # as where a leader waits long for the agent that hangs
        ready.clock.passed += 7
        await passes(ready, 3)
    else:
        await HealthCheck(ready.database, ready.settings, ready.clock).look()
    assert (await checks(ready, "worker1"))["agent"]["state"] == "fail"
    changes = await ok(ready.admin.get(f"{V1}/health/changes?node=worker1&check=agent"))
    assert (changes[0]["before"], changes[0]["after"]) == ("ok", "fail")
    await ready.heartbeat()
    ready.clock.ahead = timedelta()
    await passes(ready, 3)
    assert (await checks(ready, "worker1"))["agent"]["state"] == "ok"


class EdgeCheck(HealthCheck):
    """A leader that looks at an edge alone, which answers or not; its certificate ends soon."""

    answers = True

    async def see(self, *answers: bool) -> None:
        for self.answers in answers:
            await self._look_at_site(self._clock.monotonic())

    async def _edge(self) -> list[Check]:
        works = Check.of("edge", "edge answers", ok=self.answers, evidence="")
        return [works, self._lasts("https://edge", time.time() + 3 * 86400)] if self.answers else [works]

    async def _registry(self) -> list[Check]:
        return []


async def test_a_certificate_that_cannot_be_seen_for_a_moment_is_not_well(ready: Cluster) -> None:
    settings = ready.settings.model_copy(update={"agent_ca": Path("/ca.pem")})
    await EdgeCheck(ready.database, settings, ready.clock).see(True)
    path = f"{V1}/health/checks/{(await checks(ready, ''))['certificate']['id']}/acknowledgement"
    await ok(ready.admin.put(path, json={"until": (now() + timedelta(hours=1)).isoformat()}))
    # another one leads: what the first one knew is known
    leader = EdgeCheck(ready.database, settings, ready.clock)
    await leader.see(False)
    found = await checks(ready, "")
    assert (found["certificate"]["state"], found["certificate"]["acknowledged_by"]) == ("fail", "admin")
    assert found["edge"]["state"] == "ok"
    await leader.see(False)
    assert (await checks(ready, ""))["edge"]["state"] == "fail"
    await leader.see(True, True, True)
    assert {check: each["state"] for check, each in (await checks(ready, "")).items() if each["state"] != "ok"} == {
        "certificate": "fail"
    }


class SteadyCheck(HealthCheck):
    """A leader that finds the same each time."""

    async def see(self, moment: float) -> None:
        await self._look_at_site(moment)

    async def _database_works(self) -> list[Check]:
        return [Check.of("database", "database answers", ok=True, evidence="5 of 100 connections are in use")]

    async def _machine(self) -> list[Check]:
        return []


async def test_a_look_that_finds_nothing_new_of_the_site_writes_nothing(ready: Cluster, statements: list[str]) -> None:
    health = SteadyCheck(ready.database, ready.settings, ready.clock)
    for moment in range(3):
        statements.clear()
        await health.see(moment)
    assert [said.partition(" ")[0] for said in statements] == ["SELECT"]


async def test_what_the_scheduler_says_of_itself_is_told_at_once(ready: Cluster, statements: list[str]) -> None:
    """Where it says nothing new no look asks the database; what another leader found of it is over with the next."""
    settings = ready.settings.model_copy(update={"alerts_webhook": "https://ops.example.org"})
    states = {True: CheckState.OK, False: CheckState.WARN}
    decides = False
    health = SteadyCheck(
        *(ready.database, settings, ready.clock),
        scheduler=lambda: Check("scheduler", "scheduler decides", states[decides], "session 1" * (not decides)),
    )

    async def told() -> list[tuple[str, str, str]]:
        async with ready.database.reading() as db:
            return [
                (alert.told["check"], alert.told["state"], alert.told["evidence"])
                for alert in await db.scalars(select(HealthAlert).order_by(HealthAlert.number))
            ]

    await health.see(0)
    assert await told() == [("scheduler", "warn", "session 1")]
    for _ in range(2):
        decides = True
        await health.look(silent=False)
        assert (await checks(ready, ""))["scheduler"]["state"] == "ok"
        statements.clear()
        await health.look(silent=False)
        assert statements == []
        decides = False
        await health.look(silent=False)
    assert [state for _, state, _ in await told()] == ["warn", "ok", "warn", "ok", "warn"]
    decides = True
    leader = SteadyCheck(
        *(ready.database, settings, ready.clock),
        scheduler=lambda: Check("scheduler", "scheduler decides", CheckState.OK, ""),
    )
    await leader.see(0)
    assert (await checks(ready, ""))["scheduler"]["state"] == "ok"


class RegistryCheck(EdgeCheck):
    """A leader that looks at a registry."""

    async def registry(self) -> Check:
        return (await HealthCheck._registry(self))[0]


@contextmanager
def answering(status: int, authority: Authority) -> Iterator[int]:
    """Serve one status over TLS; gives the port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("registry"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "state", "repair"), [(200, "ok", ""), (401, "ok", ""), (502, "fail", "5-I")])
async def test_a_registry_that_is_gone_behind_its_front_has_a_repair(
    ready: Cluster, tmp_path: Path, status: int, state: str, repair: str
) -> None:
    authority = make_authority(tmp_path)
    with answering(status, authority) as port:
        more = {"agent_ca": authority.ca, "registries": [f"127.0.0.1:{port}"]}
        settings = ready.settings.model_copy(update=more)
        seen = await RegistryCheck(ready.database, settings, ready.clock).registry()
    assert (seen.state, seen.repair) == (state, repair), seen.evidence
