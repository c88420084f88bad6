"""Nodes whose clock is wrong, and sites that go back: apt takes what the site serves, whatever the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reservoir.contents.artifact import DebianArtifact
from reservoir.signing import ed25519
from tests.integration.reservoir.conftest import Machine, docker, penstock
from tests.unit.reservoir.parts import STANZA, TARGET, artifact, copied, make_bundle

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime")
CODE = {"bookworm": "debian12", "trixie": "debian13"}


def bundle(folder: Path, release: str, version: str) -> Path:
    """A bundle of one Debian package for one release."""
    folder.mkdir(parents=True)
    deb = folder / f"hello_{version}_amd64.deb"
    deb.write_bytes(version.encode())
    made = artifact(deb, DebianArtifact, "hello", version, stanza=STANZA.format(name="hello", version=version))
    made = made.model_copy(update={"targets": [CODE[release]]})
    path = folder.parent / "maker.key"
    key = ed25519.read_key(path) if path.exists() else ed25519.new_key(path)
    target = TARGET.model_copy(update={"name": CODE[release], "release": release})
    return make_bundle(folder, key, version=version, made=[(made, deb)], targets=[target])


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def site(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that published just now."""
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o755)
    penstock("import", "--trust-first", bundle(folder / "first", release, "1.0"), "--root", folder / "site")
    penstock("publish", "--root", folder / "site")
    return folder / "site"


@contextmanager
def reading(site: Path, release: str, image: str) -> Iterator[Machine]:
    """A bare machine without a network that reads the publication of a site, and nothing else."""
    words = ["--network", "none", "--volume", f"{site}:/site:ro", "--volume", f"{FAKETIME}:/faketime:ro"]
    machine = Machine(docker("run", "--detach", *words, image, "sleep", "infinity"))
    source = f"deb [signed-by=/site/current/keys/apt.asc] file:/site/current/apt {release} main"
    machine.run(f"rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; echo '{source}' > /etc/apt/sources.list")
    try:
        yield machine
    finally:
        docker("rm", "--force", "--volumes", machine.identity, check=False)


@pytest.fixture(scope="module")
def node(site: Path, release: str, node_images: dict[str, str]) -> Iterator[Machine]:
    with reading(site, release, node_images[release]) as machine:
        yield machine


@pytest.mark.parametrize("off", ["-2h", "-400d", "+400d"])
def test_a_wrong_clock_does_not_keep_a_node_from_its_packages(node: Machine, off: str) -> None:
    # as if it had never read the publication before
    node.run("rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin")
    clock = f"export LD_PRELOAD=/faketime/libfaketime.so.1 FAKETIME='{off}';"
    before = int(node.run("date +%s"))
    assert abs(int(node.run(f"{clock} date +%s")) - before) > 3600
    assert "Candidate" not in node.run("apt-cache policy hello")
    node.run(f"{clock} apt-get update -o APT::Update::Error-Mode=any")
    assert "Candidate: 1.0" in node.run(f"{clock} apt-cache policy hello")


def test_a_rollback_reaches_the_nodes(site: Path, release: str, node_images: dict[str, str], tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    own = copied(site, tmp_path / "site")
    penstock("import", "--trust-first", bundle(site.parent / "second", release, "1.1"), "--root", own)
    seen = []
    with reading(own, release, node_images[release]) as node:
        for words in (["publish"], ["rollback"], ["publish"]):
            penstock(*words, "--root", own)
            node.run("apt-get update -o APT::Update::Error-Mode=any")
            seen.append(node.run("apt-cache policy hello | grep Candidate").split()[-1])
    assert seen == ["1.1", "1.0", "1.1"]
