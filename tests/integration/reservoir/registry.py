"""A real registry on this machine, from the product's own bundle, and tiny real images for it."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reservoir.artifacts.image import layer, oci
from tests.integration.agent.conftest import free_port
from tests.integration.edge import rendered

# user "puller", password "secret"
PASSWORD = "puller:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"
EPOCH = 1_000_000_000
START_S = 60


@dataclass(frozen=True)
class Registry:
    """A running registry; `ca` is the authority of its certificate."""

    address: str
    ca: Path
    process: subprocess.Popen[bytes]

    def digest(self, name: str, reference: str) -> str | None:
        """Return the digest under a tag, or of a digest that is there; None where there is nothing."""
        answer = self._http().head(f"/v2/{name}/manifests/{reference}", headers={"Accept": ", ".join(oci.MEDIA_TYPES)})
        return answer.headers.get("docker-content-digest") if answer.status_code == httpx.codes.OK else None

    def delete(self, name: str, digest: str) -> None:
        """Delete a manifest."""
        assert self._http().delete(f"/v2/{name}/manifests/{digest}").status_code == httpx.codes.ACCEPTED

    def _http(self) -> httpx.Client:
        trusted = ssl.create_default_context(cafile=self.ca)
        return httpx.Client(
            base_url=f"https://{self.address}",
            verify=trusted,
            trust_env=False,
            auth=("puller", "secret"),
            timeout=START_S,
        )


def start(program: Path, folder: Path, *, password: bool, published: Path | None = None) -> Registry:
    """Start a registry that keeps its data in `folder`; whoever reads or writes needs the password where one is set.

    One that is given what is `published` reads that alone, as the site's does.
    """
    certificate(folder)
    port = free_port()
    address = f"127.0.0.1:{port}"
    configuration: dict[str, Any] = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {
            "addr": address,
            "tls": {"certificate": str(folder / "ca.crt"), "key": str(folder / "private/server.key")},
        },
    }
    if published:
        configuration["storage"] = yaml.safe_load(rendered("reservoir", "etc/docker/registry/config.yml"))["storage"]
        configuration["storage"]["filesystem"]["rootdirectory"] = str(published / "images/registry")
    if password:
        (folder / "passwords").write_text(f"{PASSWORD}\n")
        configuration["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "passwords")}}
    (folder / "config.yml").write_text(json.dumps(configuration))
    words = [str(program), "serve", str(folder / "config.yml")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Registry(address, folder / "ca.crt", process)
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the registry does not start")


def certificate(folder: Path, name: str = "reservoir") -> None:
    """Write a certificate for a name and for this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(title, title, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "private").mkdir()
    (folder / "private/server.key").write_bytes(pem)


def layout(folder: Path, text: str, architectures: Sequence[str]) -> str:
    """Write an OCI layout with one image, tagged `image`, that differs by `text`; return its digest."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def keep(content: bytes, media_type: str, **more: object) -> dict[str, object]:
        (blobs / oci.digest(content).removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": oci.digest(content), "size": len(content)} | more

    entries = []
    for arch in architectures:
        root = folder / f"root-{arch}"
        root.mkdir()
        (root / "text").write_text(f"{text} for {arch}")
        packed = layer.pack(root, *layer.changes({}, layer.snapshot(root, EPOCH)), folder / "layer", EPOCH)
        (folder / "layer").rename(blobs / packed.sha256)
        config = oci.config([packed], arch=arch, created="2001-09-09T01:46:40Z", start={}, steps=["test"])
        keep(config, oci.CONFIG)
        platform = {"architecture": arch, "os": "linux"}
        entries.append(keep(oci.manifest(config, [packed]), oci.MANIFEST, platform=platform))
    index = {"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": entries}
    top = keep(oci.encode(index), oci.INDEX) if len(entries) > 1 else dict(entries[0])
    top["annotations"] = {"org.opencontainers.image.ref.name": "image"}
    (folder / "index.json").write_bytes(oci.encode({"schemaVersion": 2, "manifests": [top]}))
    (folder / "oci-layout").write_bytes(oci.encode({"imageLayoutVersion": "1.0.0"}))
    return str(top["digest"])
