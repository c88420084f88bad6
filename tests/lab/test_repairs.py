"""Known issues in the closed lab: each symptom is brought about, seen, and repaired by its ladder.

What stops a ladder is tried here once on real nodes; all rules are in `tests/unit/appliance/site/repair/`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from common.errors import ProcessError
from tests.lab.journey import Journey, slowness

IMAGE = "reservoir:5000/penstock/numpy:1.26"
REPOSITORY = "/var/lib/penstock/reservoir/current/images/registry/docker/registry/v2/repositories/penstock/numpy"
LEFTOVER = "systemd-run --quiet --unit=leftover /opt/penstock/agent/bin/python -m http.server 6001"
SUBMIT = (
    "submit",
    "stays",
    "-i",
    "python:3.11",
    "-g",
    "0.5",
    "--interactive",
    "--command",
    "sleep",
    "--args",
    "infinity",
)
DOCTOR_S = 20
"""So long the doctor may take on four nodes of an idle machine."""
DROP_IN = "/run/systemd/system/penstock-agent.service.d"
WITHOUT_WATCHDOG = (
    f"mkdir -p {DROP_IN}; printf '[Service]\\nWatchdogSec=0\\n' > {DROP_IN}/hang.conf;"
    " systemctl daemon-reload; systemctl restart penstock-agent"
)
WITH_WATCHDOG = f"rm -r {DROP_IN}; systemctl daemon-reload"
BLOCK = """
table inet blocked {
    chain input { type filter hook input priority 0; tcp dport 6001 drop; }
    chain output { type filter hook output priority 0; tcp dport 56790 drop; }
}
"""

Steps = list[tuple[str, bool]]


class Repairs:
    """The site, and its nodes by what they are for."""

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        nodes = journey.lab["nodes"]
        self.master = next(node["name"] for node in nodes if "master" in node["roles"])
        self.workers: list[str] = [node["name"] for node in nodes if "worker" in node["roles"]]
        self.worker = ""

    @property
    def idle(self) -> str:
        """The worker without the session."""
        return next(name for name in self.workers if name != self.worker)

    def containers(self) -> str:
        """Return the container of the session."""
        words = ("docker", "ps", "--no-trunc", "--quiet", "--filter", "label=io.penstock.session-name=stays")
        return self.journey.in_node(self.worker, *words).stdout

    def break_(self, node: str, script: str, stdin: str = "") -> float:
        """Bring a symptom about; returns the moment."""
        done = self.journey.in_node(node, "sh", "-euc", script, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return time.monotonic()

    def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run a repair on the controller and return its record."""
        done = self.journey.in_node(self.journey.reservoir, "penstock", "repair", "run", *words, "-o", "json")
        assert done.returncode == code, done.stdout + done.stderr
        record: dict[str, Any] = json.loads(done.stdout)
        return record

    def mend(self, repair: str, node: str, begin: float, *words: str) -> Steps:
        """See the symptom, repair it, see it gone, and return the looks and rungs in order."""
        steps = steps_of(self.run(repair, *words), node)
        assert steps[0] == ("", False), "the symptom is not seen"
        assert steps[-1][1], steps
        print(f"\n   {repair}: healthy {time.monotonic() - begin:.1f} s after the injection")
        return steps


def steps_of(record: dict[str, Any], node: str) -> Steps:
    """Return the looks ("") and the rungs on a node, but for looks that repeat what the first one saw."""
    looked = [(step["rung"], step["ok"]) for step in record["steps"] if step["node"] == node and step["evidence"]]
    return [looked[0], *(step for step in looked if step[0])] if looked else []


@pytest.fixture(scope="module")
def repairs(journey: Journey) -> Repairs:
    return Repairs(journey)


@pytest.fixture(scope="module", autouse=True)
def _session(repairs: Repairs) -> Iterator[None]:
    """A session on the worker whose parts fail, which no repair ends: it is of those that a lost node keeps."""
    journey = repairs.journey
    journey.project("2")
    journey.clear()
    journey.penstock(*SUBMIT)
    journey.until_states({"stays": "RUNNING"}, "the session runs")
    repairs.worker = journey.json("get", "stays")["node"]
    before = repairs.containers()
    assert before
    yield
    journey.until_states({"stays": "RUNNING"}, "the session still runs")
    assert repairs.containers() == before
    journey.clear()


def test_the_doctor_knows_all_nodes_and_is_quick(repairs: Repairs) -> None:
    """Nodes without an agent and the backups are seen by the controller, the others by their agents."""
    names = {node["name"] for node in repairs.journey.lab["nodes"]}

    def told() -> set[tuple[str, str]]:
        done = repairs.journey.try_penstock("doctor", "--all", "-o", "json")
        return {(check["node"], check["check"]) for check in json.loads(done.stdout)}

    wanted = {*((name, "clock") for name in names), ("", "backup.age"), ("", "controller"), ("", "database")}
    repairs.journey.until(lambda: wanted <= told(), "every node was looked at")
    begin = time.monotonic()
    told()
    took = time.monotonic() - begin
    print(f"\n   penstock doctor on {len(names)} nodes: {took:.1f} s")
    assert took < DOCTOR_S * slowness()


def test_the_edge_that_stopped_is_started(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.master, "systemctl stop penstock-edge")
    assert repairs.mend("5-A", repairs.master, begin) == [("", False), ("start_edge", True)]


def test_the_api_that_stopped_is_started(repairs: Repairs) -> None:
    """With its database, of which Debian's unit of all clusters says that it runs."""
    begin = repairs.break_(repairs.master, "systemctl stop penstock-api 'postgresql@*.service'")
    assert repairs.journey.in_node(repairs.master, "systemctl", "is-active", "postgresql").stdout == "active\n"
    rehearsed = repairs.run("5-B", "--dry-run")
    assert (rehearsed["state"], rehearsed["tried"]) == ("rehearsed", [])
    assert "Start what does not run of the master: changed" in str(rehearsed["steps"])
    assert repairs.mend("5-B", repairs.master, begin) == [("", False), ("start_master", True)]


def test_an_api_that_hangs_is_ended_where_a_start_did_not_help(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.master, "systemctl kill --signal=SIGSTOP penstock-api")
    steps = repairs.mend("5-C", repairs.master, begin)
    assert steps == [("", False), ("start_master", False), ("restart_api", True)]


def test_the_agent_that_stopped_is_started(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.worker, "systemctl stop penstock-agent")
    assert repairs.mend("5-D", repairs.worker, begin) == [("", False), ("start_worker", True)]


def test_a_container_engine_that_stopped_is_started_though_the_agent_answers(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.worker, "systemctl stop docker docker.socket")
    assert repairs.mend("5-D", repairs.worker, begin) == [("", False), ("start_services", True)]
    repairs.journey.in_node(repairs.worker, "docker", "info")


def test_an_agent_that_hangs_is_ended_where_a_start_did_not_help(repairs: Repairs) -> None:
    """One whose watchdog does not see it, that is: else systemd is the first to end it."""
    repairs.break_(repairs.worker, WITHOUT_WATCHDOG)
    repairs.journey.until(lambda: repairs.run("5-D", "--dry-run")["state"] == "healthy", "the agent answers")
    begin = repairs.break_(repairs.worker, "systemctl kill --kill-whom=main --signal=SIGSTOP penstock-agent")
    try:
        steps = repairs.mend("5-E", repairs.worker, begin)
    finally:
        repairs.break_(repairs.worker, WITH_WATCHDOG)
    assert steps == [("", False), ("start_worker", False), ("restart_agent", True)]


def test_what_nodes_register_with_comes_back_in_its_order(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.master, "systemctl stop postgresql penstock-agent-edge")
    steps = repairs.mend("5-F", repairs.master, begin)
    assert steps == [("", False), ("restart_database", False), ("restart_registration", True)]


def test_a_node_whose_certificate_is_lost_joins_again(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.worker, "rm /etc/penstock/pki/node.key; systemctl stop penstock-agent")
    assert repairs.mend("5-G", repairs.worker, begin) == [("", False), ("join_worker", True)]


def test_a_node_that_nothing_else_helps_is_rebooted(repairs: Repairs) -> None:
    """The site allows it, and no session runs there; what keeps its agent apart is in its kernel's memory."""
    begin = repairs.break_(repairs.idle, "nft --file -", BLOCK)
    try:
        steps = repairs.mend("5-G", repairs.idle, begin)
        # what it runs counts in the next look at all nodes
        repairs.journey.in_node(repairs.idle, "timeout", "60", "systemctl", "is-system-running", "--wait")
    finally:
        repairs.break_(repairs.idle, "nft delete table inet blocked 2>/dev/null || true")
    assert steps == [("", False), ("join_worker", False), ("reboot", True)]


def test_a_ladder_stops_before_a_reboot_that_would_end_a_session(repairs: Repairs) -> None:
    """Nobody agreed to it by --yes."""
    repairs.break_(repairs.worker, "nft --file -", BLOCK)
    try:
        record = repairs.run("5-G", code=ProcessError.exit_code)
    finally:
        repairs.break_(repairs.worker, "nft delete table inet blocked")
    assert record["state"] == "stopped"
    assert "a reboot would end stays of admin" in record["reason"]
    assert steps_of(record, repairs.worker) == [("", False), ("join_worker", False)]


def test_what_an_agent_left_on_its_port_is_ended(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.worker, f"systemctl stop penstock-agent; {LEFTOVER}")
    steps = repairs.mend("5-H1", repairs.worker, begin)
    assert steps == [("", False), ("start_worker", False), ("restart_agent", True)]


def test_a_lost_node_is_disconnected_and_connected(repairs: Repairs) -> None:
    journey = repairs.journey
    begin = repairs.break_(repairs.worker, "systemctl stop penstock-agent docker.socket docker")
    journey.until(lambda: journey.json("node", "get", repairs.worker)["state"] == "lost", "the node is lost")
    assert repairs.mend("5-H2", repairs.worker, begin) == [("", False), ("restart_agent", True)]


def test_a_registry_that_stopped_runs_again(repairs: Repairs) -> None:
    begin = repairs.break_(repairs.journey.reservoir, "systemctl stop docker-registry")
    node = repairs.journey.reservoir
    assert repairs.mend("5-I", node, begin, "--limit", node) == [("", False), ("start_services", True)]


def test_default_images_that_were_deleted_come_back_from_the_bundle(repairs: Repairs) -> None:
    """They are gone from the registry, from the API and from a worker."""
    journey = repairs.journey
    begin = repairs.break_(journey.reservoir, f"rm -r {REPOSITORY}")
    journey.penstock("image", "delete", "numpy:1.26")
    assert repairs.mend("5-I", repairs.master, begin, "--limit", repairs.master)[-1][1]
    # a node that the API chooses pulls what is registered, and that may be this one
    journey.until(lambda: image_status(journey, "numpy:1.26") == "ready", "the image is checked")
    begin = repairs.break_(repairs.worker, f"docker rmi --force {IMAGE}")
    assert repairs.mend("5-I", repairs.worker, begin, "--limit", repairs.worker)[1] == ("pull_images", True)
    journey.in_node(repairs.worker, "docker", "image", "inspect", IMAGE)


def image_status(journey: Journey, name: str) -> str | None:
    """What the API says of an image; None where it does not have it."""
    images = {f"{image['name']}:{image['tag']}": image["status"] for image in journey.json("image", "list")}
    return images.get(name)


def test_every_run_has_a_record(repairs: Repairs) -> None:
    runs = json.loads(
        repairs.journey.in_node(repairs.journey.reservoir, "penstock", "repair", "history", "-o", "json").stdout
    )
    assert {run["repair"] for run in runs} >= {"5-A", "5-B", "5-C", "5-D", "5-E", "5-F", "5-G", "5-H1", "5-H2", "5-I"}
    assert {run["by"] for run in runs} == {"root"}


def test_an_engine_that_stopped_is_repaired_by_itself(repairs: Repairs) -> None:
    """The site names its check as one whose repair the API orders; nobody else does anything."""
    journey = repairs.journey
    begin = repairs.break_(repairs.worker, "systemctl stop docker.socket docker")
    journey.until(lambda: bool(by_itself(journey)), "the repair is ordered")
    journey.until(lambda: by_itself(journey)[-1]["state"] == "repaired", "the engine is repaired")
    print(f"\n   engine: repaired by itself {time.monotonic() - begin:.1f} s after the injection")
    assert journey.in_node(repairs.worker, "systemctl", "is-active", "docker").stdout == "active\n"
    (run,) = by_itself(journey)
    assert (run["repair"], run["limit"]) == ("5-D", repairs.worker)


def by_itself(journey: Journey) -> list[dict[str, Any]]:
    """The runs that the API ordered by itself."""
    return [run for run in journey.json("repair", "history") if run["by"] == "check:engine"]
