"""The edges: real nginx with the configurations of the roles `edge` and `agent_edge`, on the loopback address."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from jinja2 import Environment, StrictUndefined

from common.settings.edge import EdgeSettings
from tests.integration.agent.conftest import Authority, free_port

ROLES = Path(__file__).parents[2] / "roles"
NGINX = "/usr/sbin/nginx"
AGENT = "worker1"
"""The one node that is a worker."""


class Edge:
    """The ports on which the edges listen: that of people, and that of agents."""

    def __init__(self) -> None:
        self.console, self.api, self.apps, self.agents = (free_port() for _ in range(4))


def rendered(role: str, template: str, **variables: Any) -> str:
    """Return a template of a role, filled in with its defaults and `variables`."""
    known: dict[str, Any] = yaml.safe_load((ROLES / role / "defaults/main.yml").read_text()) | variables
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    return environment.from_string((ROLES / role / f"templates/{template}.j2").read_text()).render(known)


def variables_of(edge: Edge, folder: Path) -> dict[str, Any]:
    """Return what the wiring would say, with everything below a folder."""
    return {
        "edge_console_port": edge.console,
        "edge_api_port": edge.api,
        "edge_apps_port": edge.apps,
        "edge_console_suffix": f":{edge.console}",
        "edge_pki": str(folder / "pki"),
        "edge_log": str(folder / "access.log"),
        "edge_settings": EdgeSettings().model_dump(),
        "agent_edge_port": edge.agents,
        "agent_edge_agents": [AGENT],
        "agent_edge_pki": str(folder / "pki"),
        "agent_edge_log": str(folder / "agents.log"),
    }


@contextmanager
def running_edge(authority: Authority, api: str, folder: Path, **variables: Any) -> Iterator[Edge]:
    """Run both edges as the node `master`, whose certificate is the site's.

    `api` is the server of the API: HOST:PORT, or `unix:` and its socket; `variables` are those of the roles.
    """
    certificate, key = authority.issue("master")
    take(folder / "pki", authority.ca, authority.crl, certificate, key)
    edge = Edge()
    known = variables_of(edge, folder) | variables
    with ExitStack() as stack:
        for role, name, port in (("agent_edge", "agent-edge", edge.agents), ("edge", "edge", edge.console)):
            text = rendered(role, f"etc/penstock/{name}.conf", **known)
            stack.enter_context(running_nginx(text, api, folder / name, port))
        yield edge


def take(pki: Path, ca: Path, crl: Path, certificate: Path, key: Path) -> None:
    """Fill the folder of a node with its certificate and what its authority says, which may change."""
    pki.mkdir(parents=True)
    (pki / "ca.crt").symlink_to(ca)
    (pki / "ca.crl").symlink_to(crl)
    (pki / "node.crt").write_bytes(certificate.read_bytes())
    (pki / "node.key").write_bytes(key.read_bytes())


@contextmanager
def running_nginx(text: str, api: str, folder: Path, port: int) -> Iterator[Callable[[], None]]:
    """Run one configuration; of what it says of its node, only addresses and folders are the test's.

    Gives what makes it read its files again.
    """
    folder.mkdir()
    temporary = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    for said, instead in {
        "server unix:/run/penstock-api/api.sock": f"server {api}",
        "    listen ": "    listen 127.0.0.1:",
        "user www-data;": "user root;",
        "error_log stderr warn;": f"error_log {folder}/error.log info;",
        "/run/penstock-": f"{folder}/penstock-",
        "http {\n": f"http {{\n    client_body_temp_path {folder}/body; {temporary}\n",
    }.items():
        assert said in text, said
        text = text.replace(said, instead)
    for name in ("penstock-edge", "penstock-agent-edge"):
        (folder / name).mkdir()
    file, log = folder / "nginx.conf", folder / "error.log"
    file.write_text(text)
    process = subprocess.Popen([NGINX, "-c", str(file), "-p", str(folder)])
    try:
        _wait(port, process, log)
        yield lambda: process.send_signal(signal.SIGHUP)
    finally:
        process.terminate()
        process.wait(60)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        try:
            httpx.get(f"https://127.0.0.1:{port}/", verify=False)
        except httpx.TransportError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
