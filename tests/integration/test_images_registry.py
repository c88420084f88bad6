"""Row G1: an image that a member registers is pulled from a real registry's address by a real agent into Docker."""

from __future__ import annotations

import json
import platform
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import docker
import pytest

from common.protocol import ImageState, ImageStatus
from reservoir.artifacts.image import oci
from tests.integration.agent.conftest import Authority, authority, image  # noqa: F401
from tests.integration.reservoir.registry import layout
from tests.integration.test_api_agent import PASSWORD, V1, Site
from tests.postgresql import new_database

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Handler(BaseHTTPRequestHandler):
    """Reads of the registry protocol, answered from the OCI layout in `folder`: one image, `team/tool:1`."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        """Answer with a manifest or a blob."""
        top = json.loads((self.folder / "index.json").read_bytes())["manifests"][0]
        name = self.path.removeprefix("/v2/team/tool/")
        if self.path == "/v2/":
            return self._answer(b"{}", "application/json")
        blob = self.folder / "blobs/sha256" / name.rpartition("sha256:")[2]
        if name in ("manifests/1", f"manifests/{top['digest']}"):
            blob = self.folder / "blobs/sha256" / top["digest"].removeprefix("sha256:")
            return self._answer(blob.read_bytes(), top["mediaType"])
        if name.startswith("blobs/sha256:") and blob.is_file():
            return self._answer(blob.read_bytes(), "application/octet-stream")
        unknown = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
        return self._answer(json.dumps(unknown).encode(), "application/json", 404)

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", oci.digest(body))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry on loopback, from where Docker pulls without TLS."""
    folder = tmp_path_factory.mktemp("registry")
    layout(folder, "a tool", [ARCHITECTURES[platform.machine()]])
    handler = type("Handler", (Handler,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    postgresql_server: Path,
    registry: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    running = Site(authority, new_database(postgresql_server), folder)
    running.environment["PENSTOCK_API_REGISTRIES"] = running.agent.environment["PENSTOCK_AGENT_REGISTRIES"] = registry
    running.run("migrate")
    running.run("create-admin", "--name", "admin", stdin=PASSWORD)
    try:
        running.start()
        running.agent.start()
        sign_in(running, "admin")
        running.call("POST", "/users", {"name": "alice", "password": PASSWORD})
        period = {"ends_at": None}
        running.call(
            "POST", "/projects", {"name": "team-a", "quota_milli": 1000, "period": period, "members": ["alice"]}
        )
        running.until(lambda: running.get("/nodes"))
        sign_in(running, "alice")
        yield running
    finally:
        running.agent.stop()
        running.stop()
        running.client.close()


def sign_in(site: Site, name: str) -> None:
    login = site.call("POST", "/auth/login", {"name": name, "password": PASSWORD})
    site.client.headers["X-CSRF-Token"] = login["csrf_token"]


def settled(site: Site, tag: str) -> dict[str, object]:
    def find() -> dict[str, object] | None:
        (row,) = [row for row in site.get("/images") if row["tag"] == tag]
        return row if row["status"] in ("ready", "failed") else None

    return dict(site.until(find, 60))


def test_an_image_is_pulled_from_its_address(
    site: Site,
    registry: str,
    engine: docker.DockerClient,
) -> None:
    reference = f"{registry}/team/tool:1"
    body = {"name": "tool", "tag": "1", "reference": reference, "projects": ["team-a"]}
    try:
        assert site.call("POST", "/images", body)["status"] == "unchecked"
        shown = settled(site, "1")
        pulled = engine.images.get(reference)
        assert (shown["status"], shown["error"]) == ("ready", "")
        assert pulled.attrs["RepoDigests"] == [f"{registry}/team/tool@{shown['digest']}"]
        assert shown["size"] == pulled.attrs["Size"]
    finally:
        with suppress(docker.errors.ImageNotFound):
            engine.images.remove(reference, force=True)


def test_a_wrong_address_is_an_error_that_says_so(site: Site, registry: str) -> None:
    body = {"name": "tool", "tag": "2", "reference": f"{registry}/team/tool:2", "projects": ["team-a"]}
    site.call("POST", "/images", body)
    shown = settled(site, "2")
    assert shown["status"] == "failed"
    assert f"image {registry}/team/tool:2 cannot be pulled: its registry does not have it" in str(shown["error"])
    again = site.call("POST", "/images/tool:2/check", project="team-a")
    assert (again["status"], again["error"]) == ("unchecked", "")
    assert settled(site, "2")["status"] == "failed"


def test_a_registry_that_is_not_the_sites_is_not_even_asked(site: Site) -> None:
    """Whether something listens at an address is nobody's business."""
    with socket.create_server(("127.0.0.1", 0)) as somewhere:
        somewhere.settimeout(2)
        address = f"127.0.0.1:{somewhere.getsockname()[1]}"
        body = {"name": "probe", "tag": "1", "reference": f"{address}/a/b:1", "projects": ["team-a"]}
        answer = site.client.post(f"{V1}/images", json=body)
        asked = agent_asks(site, f"{address}/a/b:1")
        with pytest.raises(TimeoutError):
            somewhere.accept()
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["pointer"], error["detail"]) == ("/reference", f"this site pulls no images from {address}")
    assert asked.status is ImageStatus.FAILED
    assert f"this site pulls no images from {address}" in asked.error


def test_what_a_registry_says_to_docker_stays_on_the_node(site: Site, registry: str) -> None:
    told = agent_asks(site, f"{registry}/team/none@sha256:{'0' * 64}")
    assert told.error.startswith(f"image: image {registry}/team/none@sha256:{'0' * 64} cannot be pulled: its registry")
    assert "manifest" not in told.error
    assert "manifest unknown" in site.agent.log.read_text()


@pytest.mark.parametrize("local", [True, False])
def test_nobody_runs_what_others_have_by_an_id(
    site: Site,
    engine: docker.DockerClient,
    image: str,  # noqa: F811
    *,
    local: bool,
) -> None:
    """Neither by API nor, were it to let one through, by the agent."""
    whole = str(engine.images.get(image).id)
    for written in (whole.removeprefix("sha256:")[:1], whole.removeprefix("sha256:"), whole[:12], whole):
        body = {"name": "demo", "project": "team-a", "image": written, "gpu_milli": 500, "local_image": local}
        answer = site.client.post(f"{V1}/sessions", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/image")
        spec = {"id": "c1", "session_id": "s", "session_name": "s", "project": "p", "user": "u", "image": written}
        with site.agent.client() as client:
            refused = client.put("/v1/containers/c1", json={**spec, "pull": "never" if local else "missing"})
        assert (refused.status_code, refused.json()["errors"][0]["detail"]) == (
            422,
            f"{written} could be the id of an image, and images go by their names",
        )
        assert agent_asks(site, written).status is ImageStatus.FAILED


def agent_asks(site: Site, reference: str) -> ImageState:
    """Return what the agent has come to about an image."""
    with site.agent.client() as client:

        def told() -> ImageState | None:
            answer = client.put("/v1/images", json={"reference": reference}).raise_for_status()
            state = ImageState.model_validate_json(answer.content)
            return None if state.status is ImageStatus.PULLING else state

        return ImageState.model_validate(site.until(told, 30))
