"""The product's own bundle, and machines on a Docker network with no way out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from appliance.site import lab
from tests import product_bundle as product_bundles
from tests.integration.reservoir import loaded
from tests.integration.reservoir.disks import Disk, mounted

ROOT = Path(__file__).parents[3]
PENSTOCK = Path(sys.executable).with_name("penstock")
PRODUCT_CACHE = Path(os.environ.get("PENSTOCK_CACHE", ROOT / "build/cache")).absolute()
MEDIA = "/media/penstock"


def penstock(*words: str | Path, code: int = 0, environment: Mapping[str, str] = MappingProxyType({})) -> loaded.Ended:
    """Run `penstock reservoir` and check its exit code."""
    done = loaded.run(*words, environment=environment)
    assert done.code == code, f"{words} ended with {done.code}:\n{done.stdout}\n{done.stderr}"
    return done


def docker(*words: str | Path, check: bool = True) -> str:
    """Run docker and return what it printed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"docker {words[:2]} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True)
class Machine:
    """A bare machine in a container."""

    identity: str

    def run(self, script: str, code: int = 0) -> str:
        """Run a shell script in the machine, check its exit code and return all that it said."""
        command = ["docker", "exec", self.identity, "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{script}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, script: str) -> None:
        """Run a shell script in the background, for as long as the machine lives."""
        docker("exec", "--detach", self.identity, "sh", "-c", script)


@dataclass
class ClosedNetwork:
    """Bare machines of the product's lab images on a network with no way out."""

    bundle: Path
    images: Mapping[str, str]
    name: str = field(default_factory=lambda: f"penstock-test-{uuid.uuid4().hex[:8]}")
    machines: list[str] = field(default_factory=list)

    def machine(self, name: str, *options: str, release: str = "bookworm") -> Machine:
        """Start a machine with a release of Debian that the others know by `name`."""
        words = ["--network", self.name, "--network-alias", name, "--hostname", name, "--cap-add", "NET_ADMIN"]
        volume = f"{self.bundle}:{MEDIA}:ro"
        identity = docker(
            "run", "--detach", *words, "--volume", volume, *options, self.images[release], "sleep", "infinity"
        )
        self.machines.append(identity)
        machine = Machine(identity)
        machine.run("ip route del default || true; ! ip route show default | grep .")
        # packages wait long for each of their files to reach the disk, and this root lives for few tests
        machine.run("echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/test")
        return machine


@pytest.fixture(scope="session")
def product_bundle(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The product's bundle as it is built now, once for all workers of a run, under links of its own."""
    own = tmp_path_factory.getbasetemp()
    built = (own if worker_id == "master" else own.parent) / "bundle"
    with product_bundles.alone():
        source = Path(built.read_text() if built.exists() else _build())
        built.write_text(str(source))
        return product_bundles.linked(source, tmp_path_factory.mktemp("product"))


def lasting_cache(name: str) -> Path:
    """A cache for the builds of one file of tests, which shares its files with the product's own and lasts as that."""
    cache = PRODUCT_CACHE / "tests" / name
    for part in ("blobs", "locks"):
        (PRODUCT_CACHE / part).mkdir(parents=True, exist_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        if not (cache / part).exists():
            (cache / part).symlink_to(PRODUCT_CACHE / part)
    return cache


def _build() -> str:
    cache = {"PENSTOCK_CACHE": str(PRODUCT_CACHE)}
    manifest = ROOT / "manifest.yml"
    penstock("lock", "--if-changed", manifest, environment=cache)
    built = penstock("build", manifest, "--output", ROOT / "build/bundle", "--json", environment=cache)
    return str(json.loads(built.stdout)["bundle"])


@pytest.fixture(scope="session")
def listed(product_bundle: Path) -> dict[str, Any]:
    """What the product's bundle says about itself."""
    content: dict[str, Any] = json.loads((product_bundle / "bundle.json").read_text())
    return content


@pytest.fixture(scope="session")
def node_images(product_bundle: Path, listed: dict[str, Any]) -> dict[str, str]:
    """The lab's images by their release; what another worker or a lab has loaded is not loaded again."""
    images = [image for image in listed["artifacts"] if image["kind"] == "image" and image["name"] == lab.IMAGE]
    targets = {name for image in images for name in image["targets"]}
    releases = {target["release"] for target in listed["targets"] if target["name"] in targets}
    with product_bundles.alone():
        return {release: lab.node_image(product_bundle, release, print) for release in sorted(releases)}


@pytest.fixture(scope="session")
def node_image(node_images: dict[str, str]) -> str:
    """The lab's image of Debian 12."""
    return node_images["bookworm"]


@pytest.fixture(scope="module")
def closed(product_bundle: Path, node_images: dict[str, str]) -> Iterator[ClosedNetwork]:
    network = ClosedNetwork(product_bundle, node_images)
    docker("network", "create", "--internal", network.name)
    try:
        yield network
    finally:
        for identity in network.machines:
            docker("rm", "--force", "--volumes", identity, check=False)
        docker("network", "rm", network.name, check=False)


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with mounted(tmp_path_factory.mktemp("disk"), "100m") as made:
        yield made
