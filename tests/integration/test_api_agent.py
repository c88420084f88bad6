"""A real API process on PostgreSQL, a real agent, Docker; and what happens when one of them goes away."""

from __future__ import annotations

import json
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import docker
import httpx
import pytest

from tests import forks
from tests.api_process import api_environment
from tests.forks import Fork
from tests.integration.agent.conftest import (
    Agent,
    Authority,
    authority,  # noqa: F401
    free_port,
    image,  # noqa: F401
    make_agent,
)
from tests.integration.own_engine import remove_containers
from tests.postgresql import new_database

PASSWORD = "Correct1horse!"
V1 = "/api/v1"


class Site:
    """An API process, its agent, and a client that is signed in as administrator."""

    def __init__(self, pki: Authority, database_url: str, folder: Path) -> None:
        self.port = free_port()
        self.log = folder / "api.log"
        self.environment = api_environment(pki, database_url, self.port) | {
            "PENSTOCK_API_HEARTBEAT_INTERVAL_S": "0.3",
            "PENSTOCK_API_NODE_LOST_S": "10",
        }
        self.agent: Agent = make_agent(pki, self.port, folder)
        self.agent.environment["PENSTOCK_AGENT_LIST_INTERVAL_S"] = "1"
        self.process: Fork | None = None
        context = ssl.create_default_context(cafile=str(pki.ca))
        url = f"https://127.0.0.1:{self.port}"
        # a client that keeps a connection does not hear that a server ends, which then waits for it
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=url, verify=context, timeout=30, limits=limits)

    def run(self, *words: str, stdin: str = "") -> None:
        forks.run([sys.executable, "-m", "api", *words], self.environment, stdin, check=True)

    def start(self) -> None:
        with self.log.open("ab") as log:
            words = [sys.executable, "-m", "api", "serve"]
            self.process = forks.start(words, env=self.environment, stdout=log, stderr=log)
        self.until(self._answers, 60)

    @contextmanager
    def serving(self, image: str, engine: docker.DockerClient) -> Iterator[None]:  # noqa: F811
        """Run with an administrator, an image and a node, and leave no container."""
        self.run("migrate")
        self.run("create-admin", "--name", "admin", stdin=PASSWORD)
        try:
            self.start()
            self.agent.start()
            login = self.call("POST", "/auth/login", {"name": "admin", "password": PASSWORD})
            self.client.headers["X-CSRF-Token"] = login["csrf_token"]
            self.call("POST", "/images", {"name": "busybox", "tag": "1", "reference": image})
            self.until(lambda: self.get("/nodes"))
            yield
        finally:
            self.agent.stop()
            self.stop()
            self.client.close()
            remove_containers(engine, ancestor=image)

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(kind)
        return self.process.wait(60)

    def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> Any:
        """Wait for a condition and return what it gave."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            time.sleep(0.1)
        return value

    def until_state(self, name: str, state: str, timeout_s: float = 60) -> dict[str, Any]:
        def reached() -> Any:
            session = self.get(f"/sessions/{name}", project="team-a")
            return session if session["state"] == state else None

        return dict(self.until(reached, timeout_s))

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        response = self.client.request(method, V1 + path, json=body, params=query)
        assert response.is_success, response.text
        return response.json()

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, **query)

    def submit(self, name: str, *command: str, gpu_milli: int = 500, interactive: bool = False) -> None:
        body: dict[str, Any] = {"name": name, "project": "team-a", "image": "busybox", "command": command}
        body |= {"gpu_milli": gpu_milli, "interactive": interactive}
        self.call("POST", "/sessions", body)

    def delete(self, name: str) -> None:
        self.call("DELETE", f"/sessions/{name}", project="team-a")

    def node_state(self) -> str:
        return str(self.get("/nodes/worker1")["state"])

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.client.get("/health").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    image: str,  # noqa: F811
    engine: docker.DockerClient,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """One node with two simulated GPUs, one project that may use both."""
    running = Site(authority, new_database(postgresql_server), tmp_path_factory.mktemp("site"))
    with running.serving(image, engine):
        running.call("POST", "/projects", {"name": "team-a", "quota_milli": 2000, "period": {"ends_at": None}})
        yield running


@pytest.fixture(autouse=True)
def _tidy(site: Site, engine: docker.DockerClient, image: str) -> Iterator[None]:  # noqa: F811
    """Leave no session and no container to the next test."""
    yield
    for session in site.get("/sessions"):
        site.delete(session["name"])
    site.until(lambda: not site.get("/sessions"))
    assert engine.containers.list(all=True, filters={"ancestor": image}) == []


def test_from_submission_to_running(site: Site) -> None:
    """Prints how long it takes; the figure depends on the machine, so only the way is asserted."""
    took = []
    for number in range(10):
        began = time.monotonic()
        site.submit(f"quick-{number}", "sleep", "600", gpu_milli=100)
        site.until_state(f"quick-{number}", "RUNNING")
        took.append(time.monotonic() - began)
    print(f"submit to RUNNING: median {median(took):.2f} s, worst {max(took):.2f} s of {len(took)}")
    assert {gpu["used_milli"] for gpu in site.get("/nodes/worker1")["gpus"]} == {1000, 0}, "all on one GPU"


def test_a_command_that_fails(site: Site) -> None:
    site.submit("broken", "sh", "-c", "echo before; exit 7")
    session = site.until_state("broken", "FAILED")
    assert (session["exit_code"], session["reason"]) == (7, "its command ended with exit code 7")
    assert site.client.get(f"{V1}/sessions/broken/logs", params={"project": "team-a"}).text == "before\n"


def test_a_log_is_followed_to_its_end(site: Site) -> None:
    site.submit("epochs", "sh", "-c", "for n in 1 2 3; do echo epoch $n; sleep 0.3; done")
    query: dict[str, str | bool] = {"project": "team-a", "follow": True}
    with site.client.stream("GET", f"{V1}/sessions/epochs/logs", params=query) as log:
        assert "".join(log.iter_text()) == "epoch 1\nepoch 2\nepoch 3\n"
    site.until_state("epochs", "TERMINATED")


def test_a_container_renamed_by_hand_is_shown_as_unknown_until_it_is_ended(
    site: Site, engine: docker.DockerClient
) -> None:
    site.submit("renamed", "sleep", "600")
    session = site.until_state("renamed", "RUNNING")
    container = engine.containers.get(f"penstock-session-{session['id']}-0-0")
    container.rename(f"by-hand-{session['id']}")
    node = site.until(lambda: found if (found := site.get("/nodes/worker1"))["unknown_containers"] else None)
    assert f"{container.id} (it is Docker's by-hand-{session['id']}, and was penstock-session-" in node["message"]
    site.until_state("renamed", "FAILED")
    site.submit("later", "sleep", "600")
    time.sleep(1)
    assert site.get("/sessions/later", project="team-a")["state"] == "PENDING"
    container.reload()
    assert container.status == "running", "nobody ended it"
    site.call("DELETE", "/nodes/worker1/unknown-containers")
    site.until_state("later", "RUNNING")
    assert not engine.containers.list(all=True, filters={"id": str(container.id)})


def test_a_paused_container_is_shown_at_its_session(site: Site, engine: docker.DockerClient) -> None:
    site.submit("paused", "sleep", "600")
    session = site.until_state("paused", "RUNNING")
    container = engine.containers.get(f"penstock-session-{session['id']}-0-0")

    def warnings() -> list[str]:
        return [each["warning"] for each in site.get("/sessions/paused", project="team-a")["containers"]]

    container.pause()
    assert "`docker unpause penstock-session-" in site.until(lambda: any(told := warnings()) and told)[0]
    container.unpause()
    site.until(lambda: not any(warnings()))


def test_sessions_go_on_without_the_api(site: Site, engine: docker.DockerClient) -> None:
    site.submit("long", "sleep", "600")
    site.submit("short", "sh", "-c", "until [ -e /tmp/over ]; do sleep 0.1; done")
    before = site.until_state("long", "RUNNING")
    ends = engine.containers.get(f"penstock-session-{site.until_state('short', 'RUNNING')['id']}-0-0")
    assert site.stop(signal.SIGKILL) == -signal.SIGKILL
    ends.exec_run(["touch", "/tmp/over"])
    ends.wait()
    site.start()
    assert site.until_state("short", "TERMINATED")["exit_code"] == 0
    after = site.until_state("long", "RUNNING")
    assert after["started_at"] == before["started_at"]
    assert engine.containers.get(f"penstock-session-{after['id']}-0-0").status == "running"


def test_a_deletion_outlives_the_api(site: Site) -> None:
    """The API dies between the user's deletion and the container's end; the next one goes on from the database."""
    site.submit("victim", "sh", "-c", "trap '' TERM; while true; do sleep 1; done")
    site.until_state("victim", "RUNNING")
    site.delete("victim")
    site.stop(signal.SIGKILL)
    site.start()
    site.until_state("victim", "TERMINATED")


def test_containers_of_a_session_meet_and_their_network_outlives_the_api_and_ends_with_them(
    site: Site,
    engine: docker.DockerClient,
) -> None:
    """The API dies while the containers are launched; the next one asks for the same network."""
    serves = "exec nc -ll -p $MASTER_PORT -e hostname"
    asks = "until nc -w 1 gang-1 $MASTER_PORT < /dev/null; do sleep 0.2; done; sleep 600"
    script = f"if [ $PENSTOCK_RANK = 1 ]; then {serves}; else {asks}; fi"
    body = {"name": "gang", "project": "team-a", "image": "busybox", "command": ["sh", "-c", script]}
    site.call("POST", "/sessions", body | {"gpu_milli": 500, "replicas": 2})
    site.stop(signal.SIGKILL)
    site.start()
    site.until_state("gang", "RUNNING")
    site.until(lambda: "gang-1" in site.client.get(f"{V1}/sessions/gang/logs", params={"project": "team-a"}).text)
    [network] = engine.networks.list(filters={"label": "io.penstock.gang"})
    site.delete("gang")
    site.until_state("gang", "TERMINATED")
    assert network.name not in {each.name for each in engine.networks.list()}


def test_a_gang_grows_beside_what_runs_and_gives_way_to_other_work_of_its_project(
    site: Site, engine: docker.DockerClient
) -> None:
    """The containers that are there go on, and reach the one that comes by its name."""
    script = "trap 'exit 143' TERM; nc -ll -p 29500 -e hostname & while true; do sleep 0.2; done"
    body = {"name": "grows", "project": "team-a", "image": "busybox", "command": ["sh", "-c", script]}
    id_ = site.call("POST", "/sessions", body | {"gpu_milli": 500, "max_replicas": 2})["id"]

    def running() -> list[Any]:
        return [each for each in engine.containers.list() if id_ in (each.name or "")]

    site.until(lambda: len(running()) == 2)
    first = next(each for each in running() if (each.name or "").endswith("-0-0"))
    began = first.attrs["State"]["StartedAt"]
    asks = ["sh", "-c", "nc -w 1 grows-1 29500 < /dev/null"]
    site.until(lambda: first.exec_run(asks).output == b"grows-1\n")
    site.call("POST", "/sessions", body | {"name": "other", "gpu_milli": 1500, "command": ["sleep", "600"]})
    site.until_state("other", "RUNNING")
    (left,) = running()
    assert (left.name, left.attrs["State"]["StartedAt"]) == (first.name, began)


def test_a_launch_outlives_the_api(site: Site) -> None:
    site.submit("eager", "sleep", "600")
    site.stop(signal.SIGKILL)
    site.start()
    site.until_state("eager", "RUNNING")


def test_the_api_ends_in_order(site: Site) -> None:
    """An open log stream does not keep the server from ending."""
    site.submit("talker", "sh", "-c", "echo hello; sleep 600")
    site.until_state("talker", "RUNNING")
    query: dict[str, str | bool] = {"project": "team-a", "follow": True}
    with site.client.stream("GET", f"{V1}/sessions/talker/logs", params=query) as log:
        assert next(log.iter_text()) == "hello\n"
        began = time.monotonic()
        site.stop()
        assert time.monotonic() - began < 40
    site.start()


def test_an_agent_that_goes_away_and_comes_back(site: Site, engine: docker.DockerClient) -> None:
    site.submit("stays", "sleep", "600", interactive=True)
    site.submit("again", "sleep", "600")
    before = site.until_state("stays", "RUNNING")
    container = f"penstock-session-{site.until_state('again', 'RUNNING')['id']}-0-0"

    def started() -> str:
        return str(engine.containers.get(container).attrs["State"]["StartedAt"])

    began = started()
    site.agent.stop()
    site.until(lambda: site.node_state() == "lost")
    lost = datetime.now(UTC)
    session = site.get("/sessions/stays", project="team-a")
    assert (session["state"], session["reason"]) == ("RUNNING", "worker1 is lost: nothing heard from it for 10 s")
    assert site.until_state("again", "PENDING")["attempt"] == 1
    site.submit("gone", "sleep", "600")
    site.delete("gone")
    site.agent.start()
    site.until(lambda: site.get("/sessions/stays", project="team-a")["reason"] == "")
    assert site.get("/sessions/stays", project="team-a")["started_at"] == before["started_at"]
    after = site.until_state("again", "RUNNING")
    assert after["attempt"] == 0
    # how far it is from what was told before is how long the agent's messages took
    assert datetime.fromisoformat(after["started_at"]) < lost, "its container ran on"
    assert started() == began


def test_a_deletion_waits_for_the_agent(site: Site) -> None:
    site.submit("stays", "sleep", "600", interactive=True)
    site.until_state("stays", "RUNNING")
    site.agent.stop()
    site.delete("stays")
    site.until(lambda: "GPUs are freed when" in site.get("/sessions/stays", project="team-a")["reason"])
    site.agent.start()
    site.until_state("stays", "TERMINATED")


def test_an_orphan_is_removed_and_one_of_an_unknown_session_is_not(site: Site, engine: docker.DockerClient) -> None:
    """Two containers that no session wants; of one the database does not know the session, as after a restore."""
    site.submit("model", "sleep", "600")
    session = site.until_state("model", "RUNNING")
    wanted = f"session-{session['id']}-0-0"
    real = engine.containers.get(f"penstock-{wanted}")
    spec = {
        "session_name": "orphan",
        "project": "team-a",
        "user": "admin",
        "image": real.attrs["Config"]["Image"],
        "command": ["sleep", "600"],
    }
    unknown = "00000000-0000-4000-8000-000000000000"
    with site.agent.client() as client:
        for id_, session_id in (("session-orphan", session["id"]), ("session-unknown", unknown)):
            body = {**spec, "id": id_, "session_id": session_id}
            client.put(f"/v1/containers/{id_}", json=body).raise_for_status()

        def containers() -> set[str]:
            return {item["id"] for item in client.get("/v1/containers").json()}

        site.until(lambda: containers() == {wanted, "session-unknown"})
        site.until(lambda: site.get("/nodes/worker1")["unknown_containers"] == 1)
        site.call("DELETE", "/nodes/worker1/unknown-containers")
        site.until(lambda: containers() == {wanted})
        site.until(lambda: site.get("/nodes/worker1")["unknown_containers"] == 0)
    real.reload()
    assert real.status == "running"


def test_whatever_dies_the_allocation_is_what_docker_runs(site: Site, engine: docker.DockerClient) -> None:
    """API and agent are killed while sessions start, run and end; then both sides agree on every milli-GPU."""
    for name in ("first", "second", "third"):
        site.submit(name, "sleep", "600", gpu_milli=500)
    site.stop(signal.SIGKILL)
    site.start()
    site.until_state("first", "RUNNING")
    site.delete("first")
    site.agent.stop()
    site.stop(signal.SIGKILL)
    site.agent.start()
    site.start()
    site.submit("fourth", "sleep", "600", gpu_milli=500)
    for name in ("second", "third", "fourth"):
        site.until_state(name, "RUNNING")
    site.until_state("first", "TERMINATED")

    def by_docker() -> dict[str, int]:
        held: dict[str, int] = {}
        for container in engine.containers.list(filters={"label": "io.penstock.project=team-a"}):
            for share in json.loads(container.labels["io.penstock.gpus"]):
                held[share["uuid"]] = held.get(share["uuid"], 0) + share["milli"]
        return held

    used = {gpu["uuid"]: gpu["used_milli"] for gpu in site.get("/nodes/worker1")["gpus"] if gpu["used_milli"]}
    assert used == by_docker()
    assert sum(used.values()) == 1500
