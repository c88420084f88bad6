"""A real nginx with the configuration of the role `edge`, on the loopback address."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from jinja2 import Environment, StrictUndefined

from tests.integration.agent.conftest import Authority, free_port

ROLE = Path(__file__).parents[2] / "roles/edge"
NGINX = "/usr/sbin/nginx"


class Edge:
    """The ports on which the edge listens."""

    def __init__(self) -> None:
        self.console, self.api, self.apps = free_port(), free_port(), free_port()


def configuration(edge: Edge, pki: Path, api: str) -> str:
    """Return the role's template, filled in; `api` is the server of the API: HOST:PORT, or `unix:` and its socket."""
    variables: dict[str, Any] = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    variables |= {
        "edge_console_port": edge.console,
        "edge_api_port": edge.api,
        "edge_apps_port": edge.apps,
        "edge_console_suffix": f":{edge.console}",
        "edge_pki": str(pki),
    }
    template = (ROLE / "templates/etc/nginx/conf.d/penstock-edge.conf.j2").read_text()
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    text = environment.from_string(template).render(variables)
    # everything of a test stays on the loopback address
    text = text.replace(f"server unix:{variables['edge_socket']};", f"server {api};")
    return text.replace("    listen ", "    listen 127.0.0.1:").replace("/var/log/nginx", str(pki.parent))


@contextmanager
def running_edge(authority: Authority, api: str, folder: Path) -> Iterator[Edge]:
    """Run nginx as the node `master`, whose certificate is the site's."""
    pki = folder / "pki"
    pki.mkdir(parents=True)
    certificate, key = authority.issue("master")
    (pki / "ca.crt").symlink_to(authority.ca)
    (pki / "node.crt").write_bytes(certificate.read_bytes())
    (pki / "node.key").write_bytes(key.read_bytes())
    edge = Edge()
    (folder / "nginx.conf").write_text(
        f"""
        daemon off;
        user root;
        pid {folder}/nginx.pid;
        error_log {folder}/error.log info;
        events {{ worker_connections 512; }}
        http {{
            access_log {folder}/access.log;
            client_body_temp_path {folder}/body;
            proxy_temp_path {folder}/proxy;
            fastcgi_temp_path {folder}/fastcgi;
            uwsgi_temp_path {folder}/uwsgi;
            scgi_temp_path {folder}/scgi;
            {configuration(edge, pki, api)}
        }}
        """
    )
    process = subprocess.Popen([NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        _wait(edge, process, folder)
        yield edge
    finally:
        process.terminate()
        process.wait(20)


def _wait(edge: Edge, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        assert process.poll() is None, (folder / "error.log").read_text()
        try:
            httpx.get(f"https://127.0.0.1:{edge.console}/", verify=False)
        except httpx.TransportError:
            assert time.monotonic() < deadline, (folder / "error.log").read_text()
            time.sleep(0.05)
        else:
            return
