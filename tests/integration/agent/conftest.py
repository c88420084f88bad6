"""A real agent process on the worker's own Docker Engine, with certificates of a site made for the test."""

from __future__ import annotations

import io
import os
import secrets
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appliance.gpu import tmpfs_quota
from common.audit_protocol import AUDIT_HEAD_HEADER
from common.denied_call_protocol import DENIED_CALLS_PATH, DeniedCall, DeniedCallReport
from common.protocol import (
    HEARTBEAT_PATH,
    METRICS_PATH,
    ContainerSpec,
    GpuMetrics,
    Heartbeat,
    MetricsReport,
)
from tests import forks, once
from tests.fakes.cuda.clients import Bench
from tests.fakes.cuda.fixtures import bench, release  # noqa: F401
from tests.forks import Fork
from tests.integration.agent.other_node import OtherNode, run
from tests.integration.own_engine import remove_containers

BUSYBOX = Path("/bin/busybox")
PACKAGE_INDEX = "https://reservoir:8443/pypi/simple/"
DOCKER = "unix:///var/run/docker.sock"
STOP_S = 60
"""How long an agent may take to end on a busy machine."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def crl(self) -> Path:
        return self.folder / "ca.crl"

    def revoke(self, *paths: Path) -> None:
        """Write a list of revoked certificates with these alone."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(
            self.certificate.subject, last_update=now - timedelta(hours=1), next_update=now + timedelta(days=1)
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        for path in paths:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(serial, now).build())
        self.crl.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Write a certificate and its key for `name`, good for server and client; return both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.IPAddress(IPv4Address("127.0.0.1"))]
        certificate = (
            _builder(name, self.certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return _write(self.folder, name, certificate, key)


def make_authority(folder: Path) -> Authority:
    """Make a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    certificate = (
        _builder("test authority", name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, "ca", certificate, key)
    authority = Authority(folder, key, certificate)
    authority.revoke()
    return authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient) -> Iterator[str]:
    """A tiny image: busybox and nothing else."""
    reference = load_busybox(engine)
    yield reference
    engine.images.remove(reference, force=True)


def load_busybox(engine: docker.DockerClient) -> str:
    """Give an engine the image, and return its name."""
    assert BUSYBOX.is_file(), "install the Debian package busybox-static"
    reference = f"penstock-test/busybox:{uuid.uuid4().hex[:12]}"
    repository, tag = reference.split(":")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(BUSYBOX, "bin/busybox")
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
        for applet in (
            "sh",
            "cat",
            "echo",
            "sleep",
            "env",
            "seq",
            "stty",
            "true",
            "hostname",
            "nproc",
            "httpd",
            "nc",
            "df",
            "mkdir",
            "tar",
            "test",
            "touch",
            "dd",
            "stat",
            "find",
            "sort",
            "readlink",
            "ln",
            "mkfifo",
            "rm",
            "chmod",
        ):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    engine.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)
    return reference


@dataclass
class FakeApi:
    """The control API's side of what agents tell: keeps it. `status` and `audit_head` answer all."""

    port: int
    heartbeats: list[Heartbeat] = field(default_factory=list)
    samples: list[GpuMetrics] = field(default_factory=list)
    denied_calls: list[DeniedCall] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)
    connections: int = 0
    refused: int = 0
    interval_s: float = 0.5
    status: int = 200
    audit_head: str = ""

    def wait(self, condition: Callable[[Heartbeat], bool], timeout_s: float = 60) -> Heartbeat:
        """Return the first heartbeat that meets a condition."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for heartbeat in list(self.heartbeats):
                if condition(heartbeat):
                    return heartbeat
            time.sleep(0.01)
        raise AssertionError(f"no such heartbeat; the last is {self.heartbeats[-1:]}")


@pytest.fixture
def fake_api(authority: Authority) -> Iterator[FakeApi]:
    api = FakeApi(port=0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            api.connections += 1

        def do_POST(self) -> None:
            assert self.path in (HEARTBEAT_PATH, METRICS_PATH, DENIED_CALLS_PATH)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if api.status == 200:
                assert isinstance(self.connection, ssl.SSLSocket)
                api.peers.add(dict(part[0] for part in (self.connection.getpeercert() or {})["subject"])["commonName"])  # type: ignore[misc]
                if self.path == HEARTBEAT_PATH:
                    api.heartbeats.append(Heartbeat.model_validate_json(body))
                elif self.path == DENIED_CALLS_PATH:
                    api.denied_calls += DeniedCallReport.model_validate_json(body).denied_calls
                else:
                    api.samples += MetricsReport.model_validate_json(body).samples
            elif self.path == HEARTBEAT_PATH:
                api.refused += 1
            answer = f'{{"interval_s": {api.interval_s}}}'.encode()
            self.send_response(api.status)
            self.send_header("Content-Length", str(len(answer)))
            if api.audit_head:
                self.send_header(AUDIT_HEAD_HEADER, api.audit_head)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    context.load_cert_chain(*authority.issue("api-server"))
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    api.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield api
    server.shutdown()
    server.server_close()
    thread.join()


class Agent:
    """One agent process, which a test may stop and start again."""

    def __init__(self, authority: Authority, environment: dict[str, str], log: Path) -> None:
        self.port = int(environment["PENSTOCK_AGENT_PORT"])
        self.authority = authority
        self.environment = environment
        self.log = log
        self.process: Fork | subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def context(self, name: str = "master") -> ssl.SSLContext:
        """Return TLS settings with the client certificate of `name`."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        context.load_cert_chain(*self.authority.issue(name))
        return context

    def client(self, name: str = "master") -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=self.context(name), timeout=30)

    def start(self, run: Callable[..., Fork | subprocess.Popen[bytes]] = forks.start) -> None:
        with self.log.open("ab") as log:
            self.process = run([sys.executable, "-m", "appliance.agent"], env=self.environment, stdout=log, stderr=log)
        self.wait()

    def wait(self, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while True:
                try:
                    client.get("/v1/health").raise_for_status()
                except httpx.ConnectError:
                    assert self.process is not None
                    assert self.process.poll() is None, self.log.read_text()
                    assert time.monotonic() < deadline, self.log.read_text()
                    time.sleep(0.05)
                else:
                    return

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


@pytest.fixture
def node(
    authority: Authority, fake_api: FakeApi, tmp_path: Path, run_id: str, engine: docker.DockerClient
) -> Iterator[Agent]:
    """An agent that is not started, of a node with two simulated GPUs; its containers go with it."""
    agent = make_agent(authority, fake_api.port, tmp_path)
    yield agent
    agent.stop()
    remove_containers(engine, label=f"io.penstock.user={run_id}")
    for folder in (tmp_path / "gpu").glob("*/account"):
        tmpfs_quota.unmount(folder)
    if (tmp_path / "mounts").is_mount():
        # of one that was killed
        run("umount", "--recursive", str(tmp_path / "mounts"))


@pytest.fixture
def agent(node: Agent) -> Agent:
    """The agent of the node, started."""
    node.start()
    return node


@pytest.fixture
def other_node() -> Iterator[OtherNode]:
    node = OtherNode()
    yield node
    run("ip", "netns", "del", node.name)


@pytest.fixture(scope="session")
def library(bench: Bench) -> Path:  # noqa: F811
    """The folder of the fake NVML and driver."""
    return bench.library


@pytest.fixture
def run_id() -> str:
    """Marks the containers of one test: it stands in the label of the user."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def spec(image: str, run_id: str) -> Callable[..., ContainerSpec]:
    """Make a spec of this test; what it runs by default stays until it is told to end."""

    def make(**changes: Any) -> ContainerSpec:
        identity = f"t-{uuid.uuid4().hex[:12]}"
        wanted: dict[str, Any] = {
            "id": identity,
            "session_id": identity,
            "session_name": "trial",
            "project": "team-a",
            "user": run_id,
            "image": image,
            "command": ["sleep"],
            "args": ["600"],
        }
        return ContainerSpec.model_validate({**wanted, **changes})

    return make


def make_agent(authority: Authority, api_port: int, folder: Path) -> Agent:
    """Prepare an agent of the node worker1 with two simulated GPUs; volumes may lie in a folder beside its log."""
    certificate, key = authority.issue("worker1")
    volumes = folder / "volumes"
    volumes.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PENSTOCK_AGENT_NAME": "worker1",
        "PENSTOCK_AGENT_ADDRESS": "127.0.0.1",
        "PENSTOCK_AGENT_BIND": "127.0.0.1",
        "PENSTOCK_AGENT_PORT": str(free_port()),
        "PENSTOCK_AGENT_API_URL": f"https://127.0.0.1:{api_port}",
        "PENSTOCK_AGENT_CA": str(authority.ca),
        "PENSTOCK_AGENT_CRL": str(authority.crl),
        "PENSTOCK_AGENT_CERT": str(certificate),
        "PENSTOCK_AGENT_KEY": str(key),
        "PENSTOCK_AGENT_ALLOWED": "master",
        "PENSTOCK_AGENT_DOCKER_SOCKET": os.environ.get("DOCKER_HOST", DOCKER).removeprefix("unix://"),
        "PENSTOCK_AGENT_SIMULATED_GPUS": "2",
        "PENSTOCK_AGENT_REGISTRIES": "127.0.0.1:1",
        "PENSTOCK_AGENT_MOUNT_ROOTS": str(volumes),
        "PENSTOCK_AGENT_GPU_FOLDER": str(folder / "gpu"),
        "PENSTOCK_AGENT_CORES_FOLDER": str(folder / "cores"),
        "PENSTOCK_AGENT_PACKAGES_FOLDER": str(folder / "packages"),
        "PENSTOCK_AGENT_PACKAGE_INDEX": PACKAGE_INDEX,
        "PENSTOCK_AGENT_MOUNTS_FOLDER": str(folder / "mounts"),
        "PENSTOCK_AGENT_SANDBOX_SOCKET": str(folder / "sandbox.sock"),
    }
    return Agent(authority, environment, folder / "agent.log")


def free_port() -> int:
    """Return a port that nobody listens on, and that the kernel gives to no connection that is opened meanwhile.

    Nobody else of this run gets it: it may take long until who asked for it listens there.
    """
    while True:
        port = secrets.choice(range(12_000, 32_000))
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            once.take(f"port-{port}")
            return port


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
