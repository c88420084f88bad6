"""The role of the driver, run by Ansible on a machine with real apt and dpkg, a PCI bus of ours, and small packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.site.playbook import Result
from reservoir.bundle import bundles
from reservoir.contents.artifact import DebianArtifact
from tests.fakes import driver_packages
from tests.integration.reservoir.conftest import Machine, docker
from tests.integration.site import role_alone

OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"
WATCHED = "find /etc /usr/sbin /var/lib/dpkg/info -type f | sort | xargs sha256sum | sha256sum"


@dataclass(frozen=True)
class Worker(Machine):
    """A machine whose folder `bus` is its PCI bus, `modules` its kernel modules, and `repository` its packages."""

    folder: Path

    def offer(self, *versions: str) -> None:
        """Let the packages of its source be those of these versions."""
        for path in sorted((self.folder / "repository").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        driver_packages.publish(self.folder / "repository", *versions)
        self.run("apt-get update --quiet")

    def gpu(self, loaded: str = "") -> None:
        """Let it have a GPU, and such a module of the kernel loaded."""
        for name, text in (("vendor", "0x10de"), ("class", "0x030200")):
            self.write(f"bus/0000:01:00.0/{name}", text)
        if loaded:
            self.write("modules/nvidia/version", loaded)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(f"{text}\n")

    def deploy(self, *, check: bool = False, **driver: Any) -> Result:
        """Run the role as a deploy does."""
        return role_alone.deploy(self, self.folder, "nvidia_driver", {"driver": driver}, check=check)

    def versions(self) -> set[str]:
        """Return in which versions the parts of the driver are installed that are of one."""
        shown = self.run("dpkg-query --show --showformat='${Package} ${Version}\\n' | grep -E 'nvidia|libcuda'")
        words = [line.split() for line in shown.splitlines()]
        return {version for name, version in words if name in driver_packages.RELATIONS}


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    role_alone.lay_out(tmp_path, "nvidia_driver", monkeypatch)


@pytest.fixture
def worker(product_bundle: Path, node_image: str, tmp_path: Path) -> Iterator[Worker]:
    for name in ("bus", "modules", "repository"):
        (tmp_path / name).mkdir()
    mounts = {"bus": "/sys/bus/pci/devices", "modules": "/sys/module", "repository": "/repository"}
    options = [word for name, path in mounts.items() for word in ("--volume", f"{tmp_path / name}:{path}:ro")]
    media = ["--volume", f"{product_bundle}:/media/penstock:ro"]
    identity = docker("run", "--detach", "--network", "none", *options, *media, node_image, "sleep", "infinity")
    try:
        worker = Worker(identity, tmp_path)
        listed = bundles.read_signed(product_bundle, None).bundle
        debs = {deb.name: deb.sha256 for deb in listed.of_kind(DebianArtifact) if "debian12" in deb.targets}
        blobs = (
            f"/media/penstock/blobs/sha256/{debs[name]}"
            for name in ("python-apt-common", "distro-info-data", "python3-apt")
        )
        worker.run("echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/test && dpkg --install " + " ".join(blobs))
        source = "deb [trusted=yes] file:/repository ./"
        worker.run(f"rm -f /etc/apt/sources.list.d/*; echo '{source}' > /etc/apt/sources.list")
        worker.run(f"uname -r > /etc/fake-dkms; mkdir -p /lib/modules/{os.uname().release}/build")
        yield worker
    finally:
        docker("rm", "--force", "--volumes", identity, check=False)


def reasons(result: Result) -> str:
    return " ".join(event.reason for event in result.failures)


def changes(result: Result) -> int:
    return sum(counts.changed for counts in result.nodes.values())


def test_the_driver_is_installed_once_and_what_cannot_be_had_is_refused_before(worker: Worker) -> None:
    worker.offer(NEW)
    before = worker.run(WATCHED)
    dry = worker.deploy(branch=535, check=True)
    dry.require_success()
    assert changes(dry) == 1
    lacking = reasons(worker.deploy(branch=535, fabric_manager=True))
    assert "Unable to locate package nvidia-fabricmanager-535" in lacking
    assert worker.run(WATCHED) == before
    worker.deploy(branch=535).require_success()
    assert worker.versions() == {NEW}
    assert "blacklist nouveau" in worker.run("cat /etc/modprobe.d/penstock-nouveau.conf")
    again = worker.deploy(branch=535)
    again.require_success()
    assert changes(again) == 0


def test_a_loaded_driver_is_left_alone_while_sessions_run(worker: Worker) -> None:
    worker.offer(OLD)
    worker.run("apt-get install --quiet --yes nvidia-kernel-dkms libnvidia-encode1 nvidia-smi")
    worker.gpu(loaded="535.261.03")
    worker.offer(NEW)
    worker.run("printf '#!/bin/sh\\necho train of ann\\n' > /usr/bin/docker && chmod +x /usr/bin/docker")
    said = reasons(worker.deploy(branch=535))
    assert "train of ann run on w1" in said
    assert "penstock node drain w1" in said
    assert worker.versions() == {OLD}
    worker.run("printf '#!/bin/sh\\n' > /usr/bin/docker")
    said = reasons(worker.deploy(branch=535))
    assert worker.versions() == {NEW}
    assert "w1 has to be restarted: 535.261.03 is loaded, and 535.309.01 is installed" in said


def test_a_preinstalled_driver_is_checked_and_left(worker: Worker) -> None:
    before = worker.run(WATCHED)
    worker.gpu(loaded="550.90.07")
    said = reasons(worker.deploy(source="preinstalled", branch=535))
    assert "branch 535 is preinstalled, and 550.90.07 is loaded" in said
    fine = worker.deploy(source="preinstalled", branch=550)
    fine.require_success()
    assert changes(fine) == 0
    assert worker.run(WATCHED) == before
