"""One bundle for Debian 12 and 13, amd64 and arm64: closures hold, and they install where nothing else can be had."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.reservoir.conftest import ClosedNetwork, docker, lasting_cache, penstock

# virtual packages, alternatives and pre-dependencies
AWKWARD = ["bsd-mailx", "build-essential", "dkms", "nfs-kernel-server", "rdma-core", "slurm-wlm"]
# what each of them must be able to do where nothing else can be had
WORKS = """\
set -e
test -x /usr/sbin/rpc.nfsd
test -x /usr/sbin/sendmail
printf '#include <stdio.h>\\nint main(void) { return puts("compiled here") < 0; }\\n' > /tmp/a.c
gcc -Wall -Werror -o /tmp/a /tmp/a.c
/tmp/a | grep -x 'compiled here'
printf '#include <vector>\\nint main() { return static_cast<int>(std::vector<int>(3).size()) - 3; }\\n' > /tmp/b.cc
printf 'b: b.cc\\n' > /tmp/Makefile
make -C /tmp b
/tmp/b
dkms --version
slurmctld -V
slurmd -V
test -x /usr/bin/sbatch
test -s /etc/munge/munge.key
"""
MANIFEST: dict[str, Any] = {
    "schema": 1,
    "name": "fleet",
    "version": "1.0",
    "targets": [
        {"name": "debian12", "release": "bookworm", "python": "3.11"},
        {"name": "debian13", "release": "trixie", "python": "3.13"},
        {"name": "arm", "release": "trixie", "arch": "arm64", "python": "3.13", "bootstrap": True},
    ],
    "python": {"requirements": ["pip>=25", "markupsafe"]},
    "debian": {
        "awkward": {"packages": AWKWARD, "targets": ["debian12", "debian13"]},
        "tools": ["jq"],
    },
}
SOURCE = "deb [signed-by=/site/current/keys/apt.asc] file:/site/current/apt {release} main"
BINFMT = Path("/proc/sys/fs/binfmt_misc")
EMULATOR = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that published the bundle of all targets."""
    folder = tmp_path_factory.mktemp("fleet")
    folder.chmod(0o755)
    environment = {"PENSTOCK_CACHE": str(lasting_cache("fleet")), "PENSTOCK_SIGNING_KEY": str(folder / "signing.key")}
    (folder / "manifest.yml").write_text(yaml.safe_dump(MANIFEST))
    penstock("lock", folder / "manifest.yml", environment=environment)
    words: list[str | Path] = ["build", folder / "manifest.yml", "--output", folder / "out", "--json"]
    bundle = json.loads(penstock(*words, environment=environment).stdout)["bundle"]
    penstock("import", "--trust-first", bundle, "--root", folder / "site")
    penstock("publish", "--root", folder / "site")
    return folder / "site"


def test_one_archive_serves_every_release_and_architecture(site: Path) -> None:
    dists = site / "current/apt/dists"
    assert "Architectures: amd64 arm64\n" in (dists / "trixie/InRelease").read_text()
    assert "Architectures: amd64\n" in (dists / "bookworm/InRelease").read_text()
    stored = [path.stat().st_ino for path in (site / "blobs/sha256").iterdir()]
    served = {path.stat().st_ino for path in (site / "current/apt/pool").rglob("*.deb")}
    assert served <= set(stored)
    wheels = {path.name for path in (site / "current/pypi/packages").glob("markupsafe-*.whl")}
    assert {(name.split("-")[2], name.rpartition("_")[2]) for name in wheels} == {
        ("cp311", "64.whl"),
        ("cp313", "64.whl"),
        ("cp313", "aarch64.whl"),
    }


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_an_awkward_set_installs_on_a_bare_node(site: Path, closed: ClosedNetwork, release: str) -> None:
    node = closed.machine(f"awkward-{release}", "--volume", f"{site}:/site:ro", release=release)
    node.run(f"rm -f /etc/apt/sources.list.d/*; echo '{SOURCE.format(release=release)}' > /etc/apt/sources.list")
    node.run("apt-get update -o APT::Update::Error-Mode=any")
    node.run(f"DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends {' '.join(AWKWARD)}")
    node.run(WORKS)
    node.run("dpkg --audit && apt-get check")


def test_everything_for_arm64_is_there_in_the_eyes_of_apt(site: Path, closed: ClosedNetwork) -> None:
    node = closed.machine("foreign", "--volume", f"{site}:/site:ro", release="trixie")
    node.run(f"rm -f /etc/apt/sources.list.d/*; echo '{SOURCE.format(release='trixie')}' > /etc/apt/sources.list")
    node.run("touch /tmp/status")
    options = "-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status=/tmp/status"
    node.run(f"apt-get update {options} -o APT::Update::Error-Mode=any")
    bare = "apt '?essential' '?priority(^required$)'"
    said = node.run(f"apt-get install --simulate --no-install-recommends {options} jq {bare}")
    assert "Inst jq" in said
    assert "Inst dpkg" in said
    assert "amd64" not in said


@pytest.fixture(scope="module")
def emulated() -> Iterator[None]:
    """Let this machine run programs for arm64."""
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=False, capture_output=True)
    registered = BINFMT / "qemu-aarch64"
    ours = not registered.exists()
    try:
        if ours:
            (BINFMT / "register").write_text(EMULATOR.read_text())
    except OSError as error:
        pytest.skip(f"this machine's kernel takes no emulator for arm64: {error}; its closure was checked by apt alone")
    yield
    if ours:
        registered.write_text("-1")


@pytest.fixture
def arm(site: Path, emulated: None, tmp_path: Path) -> Iterator[str]:
    """A container for arm64 without a network, whose packages were unpacked from the publication by debootstrap."""
    keyring = tmp_path / "keyring.gpg"
    armoured = (site / "current/keys/apt.asc").read_bytes()
    subprocess.run(["gpg", "--dearmor", "--output", keyring], input=armoured, check=True)
    words = ["--foreign", "--arch=arm64", "--variant=minbase", f"--keyring={keyring}", "--force-check-gpg"]
    address = (site / "current/apt").as_uri()
    subprocess.run(["debootstrap", *words, "trixie", tmp_path / "root", address], check=True, capture_output=True)
    image = f"penstock-test-arm:{tmp_path.name}"
    with subprocess.Popen(["tar", "-C", tmp_path / "root", "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["docker", "import", "-", image], stdin=tar.stdout, check=True, capture_output=True)
    options = ["--network", "none", "--volume", f"{site}:/site:ro"]
    identity = docker("run", "--detach", *options, image, "sleep", "infinity")
    try:
        yield identity
    finally:
        docker("rm", "--force", identity)
        docker("image", "rm", image)


def test_arm64_packages_install_and_run_from_the_bundle_alone(arm: str) -> None:
    def run(script: str) -> str:
        return docker("exec", "--env", "DEBIAN_FRONTEND=noninteractive", arm, "sh", "-c", script)

    assert run("uname -m") == "aarch64"
    # an emulator waits long for each file to reach the disk, and this root lives for one test
    run("echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/test")
    run(f"echo '{SOURCE.format(release='trixie')}' > /etc/apt/sources.list")
    run("apt-get update -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any")
    run("apt-get install --yes --no-install-recommends jq")
    assert run("echo '{\"a\": 1}' | jq .a") == "1"


def test_the_wheel_for_arm64_is_what_pip_takes_there(site: Path, closed: ClosedNetwork) -> None:
    node = closed.machine("cross", "--volume", f"{site}:/site:ro")
    (pip,) = (site / "current/pypi/packages").glob("pip-*.whl")
    platform = "--platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --python-version 3.13"
    node.run(
        f"PYTHONPATH=/site/current/pypi/packages/{pip.name} python3 -m pip install --no-cache-dir --target /tmp/arm "
        f"--only-binary :all: {platform} --index-url file:///site/current/pypi/simple markupsafe"
    )
    # the 19th byte of a program says for which processor it is
    assert node.run("head -c 19 /tmp/arm/markupsafe/_speedups.*.so | tail -c 1 | od -A n -t u1").strip() == "183"
