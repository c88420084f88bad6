"""Certificates of a site as its deploys issue them: what they open at edge, API and agent, and what no longer."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.engine.direct import client_context
from appliance.site import pki
from appliance.site.model import Site
from common import revocation
from common.protocol import HEARTBEAT_PATH
from tests import forks
from tests.fakes.heartbeats import beat
from tests.integration.agent.conftest import (
    Agent,
    authority,  # noqa: F401
    fake_api,  # noqa: F401
    free_port,
    node,  # noqa: F401
    run_id,  # noqa: F401
)
from tests.integration.echo import running_echo
from tests.integration.edge import Edge, rendered, running_nginx, take, variables_of
from tests.postgresql import new_database

MASTER: dict[str, Any] = {"name": "master", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
FORMER: dict[str, Any] = {"name": "former", "address": "10.0.0.6", "roles": ["storage"]}
WORKERS: list[dict[str, Any]] = [
    {"name": name, "address": f"10.0.0.{number}", "roles": ["worker"], "agent_port": 6001}
    for number, name in ((3, "worker1"), (4, "worker2"))
]
STORAGE: dict[str, Any] = {"name": "storage1", "address": "10.0.0.5", "roles": ["storage"]}


class Deployed:
    """A site whose certificates lie in a folder; those that were stolen are kept beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.deploy(MASTER, *WORKERS, STORAGE, FORMER)
        self.contexts = {path.name: self.new_context(path.name) for path in (folder / "nodes").iterdir()}

    def deploy(self, *nodes: dict[str, Any]) -> None:
        pki.issue(Site.model_validate({"name": "lab", "nodes": list(nodes)}), self.folder)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def crl(self) -> Path:
        return self.folder / "ca.crl"

    def path(self, name: str, kind: str) -> Path:
        return self.folder / "nodes" / name / f"node.{kind}"

    def client(self, name: str) -> httpx.Client:
        """Return a client with the certificate that a node once had."""
        return httpx.Client(verify=self.contexts[name], timeout=10)

    def new_context(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.path(name, "crt"), self.path(name, "key"))
        return context


@pytest.fixture
def site(tmp_path: Path) -> Deployed:
    return Deployed(tmp_path / "state")


def heartbeat(site: Deployed, url: str, name: str) -> int:
    """Return the answer to a heartbeat with the certificate of a node, 0 where TLS refuses it."""
    with site.client(name) as client:
        try:
            return client.post(url + HEARTBEAT_PATH, json=beat(1, name=name).model_dump(mode="json")).status_code
        except httpx.TransportError:
            return 0


def resumed(site: Deployed, url: str, name: str, version: ssl.TLSVersion) -> bool:
    """Tell whether somebody comes in a second time by what was agreed on the first time, without being looked at."""
    context = site.new_context(name)
    context.maximum_version = version
    address = (httpx.URL(url).host, httpx.URL(url).port)
    session = None
    for _ in range(2):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, timeout=10) as bare,
            context.wrap_socket(bare, server_hostname=str(address[0]), session=session) as connection,
        ):
            if connection.session_reused:
                return True
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: penstock\r\n\r\n")
            assert connection.recv(1)
            session = connection.session
    return False


VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_edge_lets_through_workers_of_the_site_and_nobody_who_has_left_it(site: Deployed, tmp_path: Path) -> None:
    edge = Edge()
    variables = variables_of(edge, tmp_path) | {"agent_edge_agents": ["worker1", "worker2"]}
    text = rendered("agent_edge", "etc/penstock/agent-edge.conf", **variables)
    take(tmp_path / "pki", site.ca, site.crl, site.path("master", "crt"), site.path("master", "key"))
    with (
        running_echo() as port,
        running_nginx(text, f"127.0.0.1:{port}", tmp_path / "agent-edge", edge.agents) as reload,
    ):
        url = f"https://127.0.0.1:{edge.agents}"
        asked = {name: heartbeat(site, url, name) for name in ("worker1", "worker2", "storage1")}
        assert asked == {"worker1": 200, "worker2": 200, "storage1": 403}
        assert not any(resumed(site, url, "worker2", version) for version in VERSIONS)
        site.deploy(MASTER, WORKERS[0], STORAGE)
        reload()
        until(lambda: heartbeat(site, url, "worker2") == 400)
        assert heartbeat(site, url, "worker1") == 200


@pytest.fixture
def api(site: Deployed, postgresql_server: Path, tmp_path: Path) -> Iterator[str]:
    """A process of the API with a port of its own; the list of workers is what a role writes."""
    port = free_port()
    (tmp_path / "agents").write_text("worker1\nworker2\n")
    environment = {
        "PATH": os.environ["PATH"],
        "PENSTOCK_API_DATABASE_URL": new_database(postgresql_server),
        "PENSTOCK_API_PORT": str(port),
        "PENSTOCK_API_TLS_CERT": str(site.path("master", "crt")),
        "PENSTOCK_API_TLS_KEY": str(site.path("master", "key")),
        "PENSTOCK_API_AGENT_CA": str(site.ca),
        "PENSTOCK_API_AGENT_CRL": str(site.crl),
        "PENSTOCK_API_AGENT_CERT": str(site.path("master", "crt")),
        "PENSTOCK_API_AGENT_KEY": str(site.path("master", "key")),
        "PENSTOCK_API_AGENTS_FILE": str(tmp_path / "agents"),
    }
    forks.run([sys.executable, "-m", "api", "migrate"], environment, check=True)
    with (tmp_path / "api.log").open("wb") as log:
        process = forks.start([sys.executable, "-m", "api", "serve"], env=environment, stdout=log, stderr=log)
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def test_the_api_hears_workers_of_the_site_and_nobody_who_has_left_it(site: Deployed, api: str, tmp_path: Path) -> None:
    until(lambda: heartbeat(site, api, "worker1") == 200)
    assert (heartbeat(site, api, "worker2"), heartbeat(site, api, "storage1")) == (200, 403)
    assert not any(resumed(site, api, "worker2", version) for version in VERSIONS)
    # one that has become a worker needs no restart of the API
    (tmp_path / "agents").write_text("worker1\nworker2\nstorage1\n")
    assert heartbeat(site, api, "storage1") == 200
    site.deploy(MASTER, WORKERS[0], STORAGE)
    until(lambda: heartbeat(site, api, "worker2") == 0)
    assert heartbeat(site, api, "worker1") == 200


def test_an_agent_takes_calls_of_the_master_and_not_of_one_that_left(site: Deployed, node: Agent) -> None:  # noqa: F811
    """Names say who may call; one that is revoked does not come so far."""
    paths = {"CA": site.ca, "CRL": site.crl, "CERT": site.path("worker1", "crt"), "KEY": site.path("worker1", "key")}
    node.environment |= {f"PENSTOCK_AGENT_{name}": str(path) for name, path in paths.items()}
    node.environment["PENSTOCK_AGENT_ALLOWED"] = "master,former"
    node.context = lambda name="master": site.contexts[name]  # type: ignore[method-assign]
    node.start()

    def answer(name: str) -> int:
        with site.client(name) as client:
            try:
                return client.get(f"{node.url}/v1/health").status_code
            except httpx.TransportError:
                return 0

    assert [answer(name) for name in ("master", "former", "storage1")] == [200, 200, 403]
    assert not any(resumed(site, node.url, "former", version) for version in VERSIONS)
    site.deploy(MASTER, *WORKERS, STORAGE)
    until(lambda: answer("former") == 0)
    assert answer("master") == 200


def test_the_api_calls_no_agent_that_has_left_the_site(site: Deployed) -> None:
    """Somebody who has the key of a removed node may listen where it was."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(site.path("worker2", "crt"), site.path("worker2", "key"))
    context = client_context(site.ca, site.path("master", "crt"), site.path("master", "key"), site.crl)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with contextlib.suppress(ssl.SSLError):
                        server.wrap_socket(listener.accept()[0], server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()

        def connects() -> bool:
            try:
                with socket.create_connection(listener.getsockname()) as bare:
                    context.wrap_socket(bare, server_hostname="127.0.0.1").close()
            except ssl.SSLCertVerificationError as error:
                assert error.verify_message == "certificate revoked"  # noqa: PT017
                return False
            return True

        assert connects()
        site.deploy(MASTER, WORKERS[0], STORAGE)
        revocation.refresh()
        assert not connects()
