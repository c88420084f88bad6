"""The controller's service and the API, each a process, over both edges: orders from elsewhere, an API that goes away.

What a run does is played: systemd starts none here. What is asked, told and refused is not.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.site import pki
from appliance.site.backup.catalogue import Catalogue, Record
from appliance.site.model import Site
from common.repair_protocol import CONTROLLER, CONTROLLER_PATH
from tests import forks
from tests.forks import PENSTOCK, Fork
from tests.integration.edge import Edge, rendered, running_nginx, take, variables_of
from tests.postgresql import new_database

PASSWORD = "Correct1horse!"
SERVICE = """
import sys, threading, time
from pathlib import Path
from appliance.site.model import Site
from appliance.site.repair import controller
from appliance.site.repair.record import Records, Step, moment
from common.backup_protocol import BackupOrderReport, BackupOrderState
from common.repairs import RunState

state, site = Path(sys.argv[1]), Site.model_validate_json(sys.argv[2])
controller.EVERY_S = 0.2
records = Records(state / "repairs")

def climb(record):
    record.state = RunState.RUNNING
    record.steps.append(Step(record.limit, moment(), evidence="the edge is silent"))
    records.keep(record)
    while not (state / "mended").exists():
        time.sleep(0.05)
    record.steps.append(Step(record.limit, moment(), "start_edge", True, "the edge answers", 0.1, ["Start: changed"]))
    record.state, record.finished_at, record.tried = RunState.REPAIRED, moment(), [record.limit]
    records.keep(record)

def start(record, into):
    into.keep(record)
    threading.Thread(target=climb, args=[record]).start()

def carry_out(order, into):
    into.keep(order)
    done = {"state": BackupOrderState.DONE, "finished_at": moment(), "backup": "penstock-20261123-020000"}
    threading.Timer(0.5, lambda: into.keep(BackupOrderReport.model_validate(order.model_dump() | done))).start()

say = lambda line: print(line, flush=True)
controller.Controller(
    lambda: site, records, orders=True, say=say, start=start, look=lambda identity, kept: kept.get(identity),
    state=state, health=lambda *_: [],
    start_order=carry_out, look_at_order=lambda order, kept: kept.get(order.id), backups=state / "backup",
).run()
"""


class Installed:
    """A site of one node with its certificates: an API behind both edges, and its controller."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.edge = Edge()
        node = {"name": "localhost", "address": "127.0.0.1", "roles": ["reservoir", "master", "worker"]}
        self.document: dict[str, Any] = {
            "name": "lab",
            "nodes": [{**node, "agent_port": 6001}],
            "ports": {"agents": self.edge.agents},
            "repair": {"controller": True},
        }
        pki.issue(Site.model_validate(self.document), folder / "pki")
        self.socket = folder / "api.sock"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PENSTOCK_API_DATABASE_URL": database_url,
            "PENSTOCK_API_SOCKET": str(self.socket),
            "PENSTOCK_API_CONTROLLER": "true",
            "PENSTOCK_API_AGENT_CA": str(folder / "pki/ca.crt"),
            "PENSTOCK_API_AGENT_CERT": str(folder / "pki/nodes/localhost/node.crt"),
            "PENSTOCK_API_AGENT_KEY": str(folder / "pki/nodes/localhost/node.key"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "HOME": str(folder),
        }
        self.api: Fork | None = None

    @property
    def said(self) -> list[str]:
        """What the service has said."""
        return (self.folder / "service.log").read_text().splitlines()

    def run(self, *words: str, stdin: str = "") -> None:
        forks.run([sys.executable, "-m", "api", *words], self.environment, stdin, check=True)

    def penstock(self, *words: str, stdin: str = "", code: int | None = 0) -> str:
        """Run the command as somebody elsewhere does."""
        done = forks.run([str(PENSTOCK), *words], self.environment, stdin)
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    def start_api(self) -> None:
        with (self.folder / "api.log").open("ab") as log:
            self.api = forks.start([sys.executable, "-m", "api", "serve"], env=self.environment, stdout=log, stderr=log)
        until(lambda: self.answers() or self.api is None or self.api.poll() is not None)
        assert self.answers(), (self.folder / "api.log").read_text()

    def stop_api(self) -> None:
        if self.api:
            self.api.kill()
            self.api.wait(60)

    def answers(self) -> bool:
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)), base_url="http://api", timeout=60
        ) as client:
            try:
                return client.get("/api/v1/health").is_success
            except httpx.TransportError:
                return False

    def start_service(self) -> Fork:
        words = [sys.executable, "-c", SERVICE, str(self.folder), json.dumps(self.document)]
        with (self.folder / "service.log").open("ab") as log:
            return forks.start(words, env=self.environment, stdout=log, stderr=log)

    def runs(self) -> list[tuple[str, str, str]]:
        listed = json.loads(self.penstock("repair", "history", "-o", "json"))
        return [(each["repair"], each["by"], each["state"]) for each in listed]

    def refusal(self, folder: str, name: str = "node") -> int:
        """Return what is answered to somebody with a certificate of the site who takes orders; 0 where TLS ends it."""
        context = ssl.create_default_context(cafile=str(self.folder / "pki/ca.crt"))
        if folder:
            pair = self.folder / "pki" / folder / name
            context.load_cert_chain(pair.with_suffix(".crt"), pair.with_suffix(".key"))
        url = f"https://localhost:{self.edge.agents}{CONTROLLER_PATH}"
        with httpx.Client(verify=context, timeout=60, trust_env=False) as client:
            return client.post(url, json={}).status_code


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, postgresql_server: Path) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("site")
    installed = Installed(folder, new_database(postgresql_server))
    installed.run("migrate")
    installed.run("create-admin", "--name", "admin", stdin=PASSWORD)
    own = folder / "pki/nodes/localhost"
    take(folder / "edge-pki", folder / "pki/ca.crt", folder / "pki/ca.crl", own / "node.crt", own / "node.key")
    known = variables_of(installed.edge, folder) | {
        "edge_pki": str(folder / "edge-pki"),
        "agent_edge_pki": str(folder / "edge-pki"),
        "agent_edge_agents": ["localhost", CONTROLLER],
    }
    ports = (("agent_edge", "agent-edge", installed.edge.agents), ("edge", "edge", installed.edge.console))
    with ExitStack() as stack:
        stack.callback(installed.stop_api)
        installed.start_api()
        for role, name, port in ports:
            text = rendered(role, f"etc/penstock/{name}.conf", **known)
            stack.enter_context(running_nginx(text, f"unix:{installed.socket}", folder / name, port))
        url, ca = f"https://localhost:{installed.edge.api}", str(folder / "pki/ca.crt")
        installed.penstock("login", url, "--user", "admin", "--ca", ca, "--password-stdin", stdin=PASSWORD)
        service = installed.start_service()
        stack.callback(service.wait, 60)
        stack.callback(service.kill)
        yield installed


def test_an_order_from_elsewhere_is_run_and_followed_to_its_end(site: Installed) -> None:
    (site.folder / "mended").touch()
    out = site.penstock("repair", "run", "5-A", "--limit", "localhost")
    assert "localhost: after start_edge (start the edge): ok: the edge answers (0.1 s)" in out
    assert "5-A: repaired" in out
    assert site.runs() == [("5-A", "admin", "repaired")]
    assert site.said == []


def test_a_run_goes_on_without_the_api_and_is_told_when_it_is_back(site: Installed) -> None:
    (site.folder / "mended").unlink()
    words = [str(PENSTOCK), "repair", "run", "5-A", "--limit", "localhost"]
    with (site.folder / "command.log").open("wb") as log:
        command = forks.start(words, env=site.environment, stdout=log, stderr=log)
    try:
        until(lambda: "the edge is silent" in (site.folder / "command.log").read_text())
        site.stop_api()
        until(lambda: bool(site.said))
        (site.folder / "mended").touch()
        assert command.wait(60) != 0, "who follows it is told that the API is away"
    finally:
        command.kill()
    site.start_api()
    until(lambda: "the API answers again" in site.said)
    until(lambda: site.runs() == [("5-A", "admin", "repaired")] * 2)
    assert len(site.said) == 2, "trouble is said once"


def test_backups_are_listed_and_ordered_from_elsewhere(site: Installed) -> None:
    folder, name = site.folder / "backup", "penstock-20261123-020000"
    folder.mkdir()
    Catalogue(folder).write(Record(name, f"{datetime.now(UTC):%FT%TZ}", verified="2026-11-23T02:01:00Z", number=1))
    until(lambda: bool(json.loads(site.penstock("backup", "list", "-o", "json", code=None))["backups"]))
    assert f"{name} is good" in site.penstock("backup", "now")


def test_only_the_controller_takes_orders(site: Installed) -> None:
    assert site.refusal("controller") == 200
    assert site.refusal("nodes/localhost") == 401
    assert site.refusal("") == 400
