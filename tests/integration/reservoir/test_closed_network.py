"""From the carried disk alone: a bare machine becomes a reservoir, and a node with no way out lives from it."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from reservoir.lock.file import read_manifest
from reservoir.signing import ed25519
from tests.integration.reservoir.conftest import MEDIA, ROOT, ClosedNetwork, Machine, docker, penstock
from tests.integration.reservoir.registry import certificate

SITE = "/var/lib/penstock/reservoir"
URL = "http://reservoir:8080"
SOURCES = """\
Types: deb
URIs: {url}/apt
Suites: {release}
Components: main
Signed-By: /etc/apt/keyrings/penstock.asc
"""
NO_SERVICES = 'Acquire::EnableSrvRecords "false";'
RELEASES = ("bookworm", "trixie")
REGISTRY = """\
version: 0.1
storage: {filesystem: {rootdirectory: /srv}}
http: {addr: ":5000", tls: {certificate: /tls/ca.crt, key: /tls/private/server.key}}
"""

PUBLISH = "penstock reservoir publish --registry reservoir:5000 --ca /tls/ca.crt --json 2>/dev/null"

# what building an image takes: name spaces, mounts, another root
MAY_MOUNT = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
)
# a build that is killed while debootstrap runs, which must end with it
KILLED = """\
penstock reservoir image build {recipe} >/dev/null 2>&1 & build=$!
until pgrep -x debootstrap >/dev/null; do kill -0 $build || exit 1; sleep 0.05; done
sleep 0.2
kill -KILL $build
for _ in $(seq 300); do pgrep -r D,R,S -x debootstrap >/dev/null || exit 0; sleep 0.1; done
exit 1
"""
RECIPE = """\
schema: 1
name: team/numbers
tag: "1"
target: debian12
session: true
packages: [procps, python3, python3-venv]
python: [numpy<2]
files:
  - {path: /etc/motd, content: made here}
"""


@pytest.fixture(scope="module")
def reservoir(closed: ClosedNetwork, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine that installed the product from the disk, imported the bundle and serves it."""
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder)
    machine = closed.machine("reservoir", "--volume", f"{folder}:/tls:ro", *MAY_MOUNT)
    machine.run(f"sh {MEDIA}/install.sh --key {MEDIA}/penstock.pub")
    machine.run(f"penstock reservoir import {MEDIA} --json && penstock reservoir publish --json")
    machine.start(f"cd {SITE}/current && exec python3 -m http.server 8080")
    listens(machine, 8080)
    return machine


def listens(machine: Machine, port: int) -> None:
    """Wait until something on a machine does."""
    connect = f"import socket; socket.create_connection(('localhost', {port}))"
    machine.run(f'for _ in $(seq 600); do python3 -c "{connect}" 2>/dev/null && exit 0; sleep 0.1; done; exit 1')


@pytest.fixture(scope="module", params=RELEASES)
def node(closed: ClosedNetwork, reservoir: Machine, request: pytest.FixtureRequest) -> Machine:
    """A bare machine of either release whose only package source is the reservoir."""
    machine = closed.machine(f"node-{request.param}", release=request.param)
    machine.run("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; mkdir -p /etc/apt/keyrings")
    fetch = f"import urllib.request as u; print(u.urlopen('{URL}/keys/apt.asc').read().decode(), end='')"
    machine.run(f'python3 -c "{fetch}" > /etc/apt/keyrings/penstock.asc')
    machine.run(
        f"cat > /etc/apt/sources.list.d/penstock.sources <<END\n{SOURCES.format(url=URL, release=request.param)}END\n"
    )
    # as nodes of a site have it: apt of Debian 13 waits long for answers that nobody gives here
    machine.run(f"echo '{NO_SERVICES}' > /etc/apt/apt.conf.d/90penstock; apt-get update")
    return machine


def test_the_network_leads_nowhere(node: Machine) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), 3)"
    assert "Network is unreachable" in node.run(f'python3 -c "{connect}"', code=1)


def test_every_group_of_debian_packages_is_complete(node: Machine) -> None:
    manifest = read_manifest(ROOT / "manifest.yml")
    release = node.run(". /etc/os-release && echo $VERSION_CODENAME").strip()
    (target,) = [target for target in manifest.targets if target.release == release]
    for name, group in manifest.debian_groups(target).items():
        said = node.run(f"apt-get install --simulate --no-install-recommends {' '.join(group.packages)}")
        assert "0 not upgraded" in said, name


def test_a_debian_package_installs_and_runs(node: Machine) -> None:
    node.run("! command -v rsync")
    node.run("DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends rsync")
    assert "protocol version" in node.run("rsync --version")


def test_packages_signed_by_another_key_are_refused(node: Machine) -> None:
    node.run("cp /etc/apt/keyrings/penstock.asc /tmp/right.asc")
    try:
        node.run("cp /usr/share/keyrings/debian-archive-keyring.gpg /etc/apt/keyrings/penstock.asc")
        said = node.run("apt-get update -o APT::Update::Error-Mode=any", code=100)
        assert re.search("NO_PUBKEY|Missing key", said), "in the words of gpgv on Debian 12 and of sqv on Debian 13"
    finally:
        node.run("cp /tmp/right.asc /etc/apt/keyrings/penstock.asc && apt-get update")


def test_python_packages_install_from_the_index(node: Machine, listed: dict[str, Any]) -> None:
    pip = next(a["filename"] for a in listed["artifacts"] if a["name"] == "pip")
    options = f"--no-cache-dir --index-url {URL}/pypi/simple --trusted-host reservoir"
    node.run(
        f"python3 -m venv --without-pip /tmp/venv && cd /tmp && "
        f"python3 -c \"import urllib.request as u; u.urlretrieve('{URL}/pypi/packages/{pip}', '{pip}')\""
    )
    install = f"cd /tmp && PYTHONPATH={pip} venv/bin/python -m pip install {options}"
    said = node.run(f"{install} --dry-run 'penstock[agent,api,reservoir,site]'")
    for name in ("penstock", "fastapi", "ansible-core", "pysequoia", "docker", "psycopg-binary"):
        assert re.search(rf"Would install .*\b{name}-\d", said), said
    node.run(f"{install} typer && venv/bin/python -c 'import typer, rich'")
    assert ".metadata" in said, "pip read the metadata without the wheels"


@pytest.fixture(scope="module")
def published(reservoir: Machine) -> dict[str, Any]:
    """What the first publication to an empty registry says; the registry runs from then on."""
    reservoir.run(
        f"rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; echo 'deb [signed-by={SITE}/current/keys/apt.asc] "
        f"file:{SITE}/current/apt bookworm main' > /etc/apt/sources.list.d/penstock.list; apt-get update && "
        "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends debootstrap docker-registry "
        "skopeo"
    )
    reservoir.run(f"cat > /etc/docker/registry/config.yml <<END\n{REGISTRY}END\n")
    reservoir.start("exec docker-registry serve /etc/docker/registry/config.yml")
    listens(reservoir, 5000)
    said: dict[str, Any] = json.loads(reservoir.run(PUBLISH))
    return said


@pytest.fixture(scope="module")
def recipe(published: dict[str, Any], reservoir: Machine) -> str:
    """The path of a recipe on the reservoir, which has what building an image takes."""
    reservoir.run(f"cat > /root/recipe.yml <<END\n{RECIPE}END\n")
    return "/root/recipe.yml"


def test_images_go_to_the_registry_once(reservoir: Machine, listed: dict[str, Any], published: dict[str, Any]) -> None:
    images = [artifact for artifact in listed["artifacts"] if artifact["kind"] == "image"]
    digests = {f"{image['name']}:{image['version']}": image["metadata"]["digest"] for image in images}
    assert sorted(published["pushed"]) == sorted(digests)
    second = json.loads(reservoir.run(PUBLISH))
    assert (second["pushed"], second["changed"]) == ([], False)
    inspect = "skopeo --insecure-policy inspect --cert-dir /tls --format '{{.Digest}}'"
    for reference, digest in digests.items():
        assert digest in reservoir.run(f"{inspect} docker://reservoir:5000/{reference}")


def test_the_site_builds_an_image_from_what_it_serves_though_an_earlier_build_was_killed(
    reservoir: Machine, recipe: str, tmp_path: Path
) -> None:
    reservoir.run(KILLED.format(recipe=recipe))
    work = "ls -d /root/.cache/penstock/work-*"
    reservoir.run(work)
    build = f"penstock reservoir image build {recipe} --json 2>/dev/null"
    made = json.loads(reservoir.run(build))
    reservoir.run(f"! {work}")
    assert made["bundle"].startswith("local-team-numbers-1-")
    assert made["changed"]
    assert not json.loads(reservoir.run(build))["changed"]
    published = json.loads(reservoir.run(PUBLISH))
    assert published["pushed"] == ["team/numbers:1"]
    assert made["bundle"] in published["bundles"]
    images = json.loads(reservoir.run(f"cat {SITE}/current/images/index.json"))["images"]
    assert any((image["name"], image["session"]) == ("team/numbers", True) for image in images)
    reference = f"penstock-test-{uuid.uuid4().hex[:8]}/numbers:1"
    copy = "skopeo --insecure-policy copy --quiet --src-cert-dir /tls docker://reservoir:5000/team/numbers:1"
    reservoir.run(f"{copy} docker-archive:/root/image.tar:{reference}")
    docker("cp", f"{reservoir.identity}:/root/image.tar", tmp_path)
    docker("load", "--input", tmp_path / "image.tar")
    try:
        script = "import numpy; print(numpy.__version__, open('/etc/motd').read())"
        said = docker("run", "--rm", "--network", "none", reference, "python", "-c", script)
    finally:
        docker("rmi", reference)
    assert re.fullmatch(r"1\.26\.\d+ made here", said)


def test_a_recipe_that_the_site_cannot_build_is_told(reservoir: Machine, recipe: str) -> None:
    for words, told in (
        ("s/procps/no-such-package/", "no such Debian package"),
        ("s/numpy<2/numpy<1/", "no set of wheels"),
        ("s/debian12/debian11/", "use one of: debian12, debian13"),
        ("s/, python3-venv//", "add python3-venv"),
        ("s#team/numbers#penstock/numpy#; s/tag: .*/tag: '1.26'/", "choose another name or tag"),
    ):
        reservoir.run(f'sed "{words}" {recipe} > /root/other.yml')
        said = reservoir.run("penstock reservoir image build /root/other.yml; test $? = 2 -o $? = 7")
        assert told in said
        assert "/root/other.yml" in said


@pytest.mark.usefixtures("published")
def test_a_registry_that_does_not_answer_is_told(reservoir: Machine) -> None:
    said = reservoir.run("penstock reservoir publish --registry reservoir:5999 --ca /tls/ca.crt", code=5)
    assert "the registry does not answer" in said


def test_the_installer_refuses_a_key_that_is_not_the_makers(closed: ClosedNetwork, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    ed25519.new_key(tmp_path / "other.key")
    other = ed25519.public_pem(ed25519.read_key(tmp_path / "other.key"))
    (tmp_path / "other.pub").write_bytes(other)
    machine = closed.machine("stranger", "--volume", f"{tmp_path}:/keys:ro")
    said = machine.run(f"sh {MEDIA}/install.sh --key /keys/other.pub", code=3)
    assert "the signature does not belong to the key" in said
    machine.run("! test -e /opt/penstock && ! command -v penstock")


def test_the_installer_refuses_a_changed_package(
    closed: ClosedNetwork, product_bundle: Path, listed: dict[str, Any], tmp_path: Path
) -> None:
    damaged = tmp_path / "bundle"
    wheel = next(a for a in listed["artifacts"] if a["kind"] == "python" and a["name"] == "rich")
    for path in product_bundle.rglob("*"):
        # only what the installer reads, so that the copy is small
        if path.is_file() and (path.parent == product_bundle or path.name in _wheels(listed)):
            (damaged / path.relative_to(product_bundle)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, damaged / path.relative_to(product_bundle))
    content = bytearray((damaged / "blobs/sha256" / wheel["sha256"]).read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "blobs/sha256" / wheel["sha256"]).write_bytes(content)
    tmp_path.chmod(0o755)
    machine = closed.machine("careful", "--volume", f"{damaged}:/damaged:ro")
    assert f"{wheel['sha256']}: was changed" in machine.run("sh /damaged/install.sh --trust-first", code=3)
    machine.run("! test -e /opt/penstock/site && ! command -v penstock")


def test_the_bundle_is_whole(product_bundle: Path) -> None:
    verdict = json.loads(penstock("verify", product_bundle, "--key", product_bundle / "penstock.pub", "--json").stdout)
    assert verdict["pinned"]


def _wheels(listed: dict[str, Any]) -> set[str]:
    return {a["sha256"] for a in listed["artifacts"] if a["kind"] == "python"}
