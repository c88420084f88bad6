"""What roles' modules get from real services over TLS: calls of a node, and whether the edge itself answers."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from appliance.site import pki
from appliance.site.model import Site
from tests.integration.agent.conftest import free_port
from tests.role_modules import role_module

calls = role_module("evidence/library/node_calls.py")
edge = role_module("edge/library/edge_answers.py")

WHEEL, MANIFEST = b"a wheel", b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
PAGES: dict[str, bytes] = {
    "/health": b"{}",
    "/InRelease": b"-----BEGIN PGP SIGNED MESSAGE-----\nindex",
    "/Unsigned": b"Origin: elsewhere",
    "/simple/penstock/": f'<a href="../../p-1.whl#sha256={hashlib.sha256(WHEEL).hexdigest()}">'.encode(),
    "/simple/other/": f'<a href="../../p-1.whl#sha256={"0" * 64}">'.encode(),
    "/simple/none/": b"<html></html>",
    "/p-1.whl": WHEEL,
    "/v2/_catalog": b'{"repositories": ["penstock/python"]}',
    "/v2/penstock/python/tags/list": b'{"tags": ["3.11"]}',
    "/v2/penstock/python/manifests/3.11": MANIFEST,
}


class Pages(http.server.BaseHTTPRequestHandler):
    """What a reservoir and services answer."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.send_response({"/apps": 401, "/down": 502}.get(path, 200 if path in PAGES else 404))
        self.send_header("Docker-Content-Digest", DIGEST)
        self.end_headers()
        self.wfile.write(PAGES.get(path, b""))

    def log_message(self, *_: object) -> None:
        """Keep silent."""


@contextmanager
def served(certificate: Path, key: Path, *, port: int = 0) -> Iterator[int]:
    """A service that shows a certificate; yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Pages)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


SITE = {
    "name": "lab",
    "nodes": [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {"name": "s1", "address": "10.0.0.3", "roles": ["storage"]},
    ],
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of a site's certificates."""
    pki.issue(Site.model_validate(SITE), tmp_path / "pki")
    return tmp_path / "pki"


def own(site: Path, name: str = "m1") -> tuple[Path, Path]:
    return site / "nodes" / name / "node.crt", site / "nodes" / name / "node.key"


@pytest.fixture
def call(site: Path) -> Callable[..., dict[str, Any]]:
    """Call as the module does."""
    certificate, key = own(site, "s1")
    paths = {"ca": site / "ca.crt", "crl": site / "ca.crl", "certificate": certificate, "key": key}
    empty = {"services": {}, "release": "", "index": "", "registry": ""}
    return lambda **wanted: calls.call_all(empty | {name: str(path) for name, path in paths.items()} | wanted)


def test_a_node_calls_and_fetches_as_users_do(site: Path, call: Callable[..., dict[str, Any]]) -> None:
    with served(*own(site)) as port:
        url = f"https://localhost:{port}"
        found = call(
            services={"console": f"{url}/health", "apps": f"{url}/apps", "API": f"{url}/down"},
            release=f"{url}/InRelease",
            index=f"{url}/simple/penstock/",
            registry=f"{url}/",
        )
    assert {name: (each["ok"], each["detail"]) for name, each in found.items()} == {
        "console": (True, "HTTP 200"),
        "apps": (True, "HTTP 401"),
        "API": (False, "HTTP 502 Bad Gateway"),
        "release": (True, "40 bytes, signed"),
        "index": (True, "p-1.whl, 7 bytes"),
        "registry": (True, f"penstock/python:3.11, {DIGEST[:19]}"),
    }
    assert {round((each["until"] - time.time()) / 86_400) for each in found.values()} == {pki.NODE_DAYS}


@pytest.mark.parametrize(
    ("kind", "path", "said"),
    [
        ("release", "/Unsigned", "the index of packages is not signed"),
        ("release", "/gone", "HTTP 404 Not Found"),
        ("index", "/simple/other/", "is not what the index says"),
        ("index", "/simple/none/", "no wheel"),
    ],
)
def test_what_is_fetched_has_to_be_what_was_wanted(
    site: Path, call: Callable[..., dict[str, Any]], kind: str, path: str, said: str
) -> None:
    with served(*own(site)) as port:
        found = call(**{kind: f"https://localhost:{port}{path}"})[kind]
    assert not found["ok"]
    assert said in found["detail"]


def test_who_answers_has_to_be_of_the_site(site: Path, tmp_path: Path, call: Callable[..., dict[str, Any]]) -> None:
    """A stranger, a node that the site has revoked, and nobody."""
    stranger = tmp_path / "stranger"
    pki.issue(Site.model_validate(SITE), stranger)
    taken = tmp_path / "taken"
    shutil.copytree(site / "nodes" / "m1", taken)
    pki.revoke(site, "m1")
    with socket.socket() as closed, served(*own(stranger)) as other:
        # a port that is somebody's who does not listen
        closed.bind(("127.0.0.1", 0))
        free = closed.getsockname()[1]
        with served(taken / "node.crt", taken / "node.key") as revoked:
            found = call(
                services={
                    "stranger": f"https://localhost:{other}/health",
                    "revoked": f"https://localhost:{revoked}/health",
                    "nobody": f"https://localhost:{free}/health",
                }
            )
    assert not any(each["ok"] for each in found.values())
    assert "no certificate of the site that counts" in found["stranger"]["detail"]
    assert "certificate revoked" in found["revoked"]["detail"]
    assert found["nobody"]["detail"] == "Connection refused"


def test_a_certificate_that_a_service_shows_is_told_and_not_that_on_the_disk(
    site: Path, tmp_path: Path, call: Callable[..., dict[str, Any]]
) -> None:
    """nginx shows what it has read, whatever lies on the disk since."""
    shutil.rmtree(site / "nodes" / "m1")
    ends = datetime.now(UTC) + timedelta(days=1)
    pki.issue(Site.model_validate(SITE), site, now=ends - timedelta(days=pki.NODE_DAYS))
    with served(*own(site)) as port:
        pki.issue(Site.model_validate(SITE), site)
        found = call(services={"console": f"https://localhost:{port}/health"})["console"]
    assert (found["ok"], abs(found["until"] - ends.timestamp()) < 2) == (True, True)


def test_the_edge_answers_with_the_certificate_of_its_node(site: Path) -> None:
    trust = ssl.create_default_context(cafile=site / "ca.crt")
    mine, other = (ssl.PEM_cert_to_DER_cert(own(site, name)[0].read_text()) for name in ("m1", "s1"))
    with served(*own(site)) as port:
        assert edge.ask(port, mine, trust) == ""
        assert edge.ask(port, other, trust) == "it shows another certificate than the node's"
    assert edge.ask(port, mine, trust) == "Connection refused"


def test_a_program_that_was_there_first_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust = ssl.create_default_context(cafile=site / "ca.crt")
    mine = ssl.PEM_cert_to_DER_cert(own(site)[0].read_text())

    def run(words: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        # it takes connections and never says anything
        monkeypatch.setattr(edge, "ANSWER_S", 0.2)
        assert edge.ask(port, mine, trust)
        assert edge.holder(port, run) in {f"{name} ({os.getpid()}) listens there" for name in _names()}
    assert edge.holder(port, run) == "nobody listens there"


def _names() -> list[str]:
    """How the kernel calls the threads of this process."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def test_it_waits_for_an_edge_that_begins_late_and_not_for_ever(site: Path) -> None:
    trust = ssl.create_default_context(cafile=site / "ca.crt")
    mine = ssl.PEM_cert_to_DER_cert(own(site)[0].read_text())
    with served(*own(site, "s1"), port=free_port()) as port:
        assert "another certificate" in edge.wait(port, mine, trust, time.monotonic() + 0.3)
        said: list[str] = []
        thread = threading.Thread(target=lambda: said.append(edge.wait(port, mine, trust, time.monotonic() + 60)))
        thread.start()
    with served(*own(site), port=port):
        thread.join()
    assert said == [""]


def test_modules_hand_out_what_json_can_carry(call: Callable[..., dict[str, Any]]) -> None:
    assert json.dumps(call(services={"nobody": "https://localhost:1/"}))
