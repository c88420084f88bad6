"""A real API process on PostgreSQL with simulated agents, made to be ill-treated."""

from __future__ import annotations

import signal
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests import forks
from tests.api_process import api_environment
from tests.fakes.agents import FleetThread, Way, running_fleet
from tests.forks import Fork
from tests.integration.agent.conftest import Authority, free_port
from tests.postgresql import as_server_user, new_database, programs, running_server

PASSWORD = "Correct1horse!"
V1 = "/api/v1"
HOLDING = ("SCHEDULED", "PREPARING", "RUNNING", "TERMINATING")
GPUS = 4


class FaultySite:
    """The API, its database and a fleet of agents; every part can be taken away and given back."""

    def __init__(self, pki: Authority, postgresql: Path, folder: Path) -> None:
        self.port, self.folder, self.postgresql = free_port(), folder, postgresql
        self.url = new_database(postgresql)
        self.environment = api_environment(pki, self.url, self.port) | {
            "PENSTOCK_API_HEARTBEAT_INTERVAL_S": "0.5",
            "PENSTOCK_API_NODE_LOST_S": "6",
            "PENSTOCK_API_MIN_RUNTIME_S": "0",
            "PENSTOCK_API_RECLAIM_GRACE_S": "1",
        }
        self.process: Fork | None = None
        context = ssl.create_default_context(cafile=str(pki.ca))
        url = f"https://127.0.0.1:{self.port}"
        # a client that keeps a connection does not hear that a server ends, which then waits for it
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=url, verify=context, timeout=60, limits=limits)
        self.fleet: FleetThread

    def prepare(self) -> None:
        """Make the schema, an administrator, an image and two projects."""
        self._run("migrate")
        self._run("create-admin", "--name", "admin", stdin=PASSWORD)
        self.start()
        answer = self.call("POST", "/auth/login", {"name": "admin", "password": PASSWORD})
        self.client.headers["X-CSRF-Token"] = str(answer.get("csrf_token", ""))
        self.call("POST", "/images", {"name": "busybox", "tag": "1", "reference": "reservoir/busybox:1"})
        for name in ("team-a", "team-b"):
            self.call("POST", "/projects", {"name": name, "quota_milli": 4000, "period": {"ends_at": None}})

    def start(self) -> None:
        with (self.folder / "api.log").open("ab") as log:
            words = [sys.executable, "-m", "api", "serve"]
            self.process = forks.start(words, env=self.environment, stdout=log, stderr=log)
        self.until(self._answers, 60)

    def kill(self) -> None:
        """End the API as a power cut does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def restart_database(self) -> None:
        """Stop PostgreSQL at once, every connection with it, and start it again."""
        data = self.postgresql / "data"
        as_server_user(
            programs() / "pg_ctl", "-D", data, "-w", "-m", "immediate", "restart", "-l", self.postgresql / "log"
        )

    def until(self, condition: Callable[[], Any], timeout_s: float = 90) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, (self.folder / "api.log").read_text()[-5000:]
            time.sleep(0.1)
        return value

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        response = self.client.request(method, V1 + path, json=body, params=query)
        assert response.is_success, response.text
        return response.json()

    def submit(self, name: str, project: str = "team-a", gpu_milli: int = 1000, **more: Any) -> None:
        body = {"name": name, "project": project, "image": "busybox", "gpu_milli": gpu_milli, **more}
        self.call("POST", "/sessions", body)

    def session(self, name: str, project: str = "team-a") -> dict[str, Any]:
        return dict(self.call("GET", f"/sessions/{name}", project=project))

    def delete(self, name: str, project: str = "team-a") -> None:
        self.call("DELETE", f"/sessions/{name}", project=project)

    def sessions(self) -> list[dict[str, Any]]:
        return list(self.call("GET", "/sessions"))

    def reaches(self, name: str, *states: str, project: str = "team-a", timeout_s: float = 90) -> dict[str, Any]:
        def reached() -> Any:
            session = self.session(name, project)
            return session if session["state"] in states else None

        return dict(self.until(reached, timeout_s))

    def state_in_database(self, name: str) -> str:
        """Return the state of the newest session of a name without the API."""
        query = "SELECT state FROM sessions WHERE name = %s ORDER BY created_at DESC LIMIT 1"
        with psycopg.connect(self.url.replace("postgresql+psycopg", "postgresql")) as connection:
            row = connection.execute(query, [name]).fetchone()
        return str(row[0]) if row else ""

    def allocation(self) -> dict[tuple[str, str], int]:
        """Return what live sessions hold, by node and GPU, as the API says."""
        held = Counter[tuple[str, str]]()
        for session in self.sessions():
            if session["state"] in HOLDING:
                for container in session["containers"]:
                    held.update({(container["node"], gpu["uuid"]): gpu["milli"] for gpu in container["gpus"]})
        return dict(held)

    def check(self) -> None:
        """Wait until the agents run what the API says, and nothing else; no launch may ever have been a wrong one."""
        self.until(lambda: self.allocation() == self.fleet.fleet.allocation())
        wanted = {
            f"session-{session['id']}-{session['attempt']}-{container['rank']}"
            for session in self.sessions()
            if session["state"] == "RUNNING"
            for container in session["containers"]
        }
        self.until(lambda: {id_ for _, id_ in self.fleet.fleet.containers()} == wanted)
        assert self.fleet.fleet.refused() == []

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "api.log").read_text()[-5000:]
        try:
            return self.client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def _run(self, *words: str, stdin: str = "") -> None:
        forks.run([sys.executable, "-m", "api", *words], self.environment, stdin, check=True)


@contextmanager
def faulty_site(pki: Authority, folder: Path) -> Iterator[FaultySite]:
    """Give a site of two nodes with four GPUs each, ready for sessions."""
    with running_server() as postgresql:
        site = FaultySite(pki, postgresql, folder)
        with running_fleet(Way(pki.ca, pki.issue, port=site.port), 2, gpus=GPUS) as fleet:
            site.fleet = fleet
            try:
                site.prepare()
                fleet.start()
                site.until(lambda: len(site.call("GET", "/nodes")) == 2)
                yield site
            finally:
                if site.process and site.process.poll() is None:
                    site.process.terminate()
                    site.process.wait(30)
                site.client.close()
