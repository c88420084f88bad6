"""A bare machine whose packages come from the bundle of the product, by real apt and without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reservoir.bundle import bundles
from reservoir.contents.artifact import DebianArtifact
from tests.integration.reservoir.conftest import Machine, docker


@contextmanager
def machine_with_packages(bundle: Path, target: str, image: str, folder: Path, *options: str) -> Iterator[Machine]:
    """Run a machine of a target's image; `options` are those of `docker run`."""
    repository = folder / "repository"
    repository.mkdir()
    index = ""
    for deb in bundles.read_signed(bundle, None).bundle.of_kind(DebianArtifact):
        if target in deb.targets:
            (repository / f"{deb.sha256}.deb").hardlink_to(bundle / "blobs/sha256" / deb.sha256)
            fields = f"Filename: ./{deb.sha256}.deb\nSize: {deb.size}\nSHA256: {deb.sha256}\n"
            index += f"{deb.metadata.stanza.rstrip()}\n{fields}\n"
    (repository / "Packages").write_text(index)
    mounts = ("--volume", f"{repository}:/repository:ro")
    identity = docker("run", "--detach", "--network", "none", *mounts, *options, image, "sleep", "infinity")
    try:
        machine = Machine(identity)
        machine.run("echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/test; rm -f /etc/apt/sources.list.d/*")
        machine.run("echo 'deb [trusted=yes] file:/repository ./' > /etc/apt/sources.list && apt-get update --quiet")
        machine.run("apt-get install --quiet --yes python3-apt")
        yield machine
    finally:
        docker("rm", "--force", "--volumes", identity, check=False)
