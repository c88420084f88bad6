"""Preflight and the keeping of files on a machine that was in use: real apt, dpkg, PostgreSQL, processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from appliance.site import preflight, rollout
from reservoir.contents.artifact import DebianArtifact
from tests.integration.site.conftest import Node

# with the names and relations of Docker's own packages
FOREIGN = """\
Package: {name}
Version: 5:27.0
Architecture: all
Maintainer: somebody
Description: {name}
{relations}
"""
DOCKER_CE = "Depends: containerd.io\nConflicts: docker.io\nReplaces: docker.io"
CONTAINERD_IO = "Conflicts: containerd, runc\nReplaces: containerd, runc\nProvides: containerd, runc"
WATCHED = "find /etc /var/lib/dpkg /var/lib/apt /var/cache/apt /tmp /opt -type f | sort | xargs stat -c '%n %s %Y'"


@pytest.fixture(autouse=True)
def clean(node: Node) -> Iterator[None]:
    """Take away what a test has installed, whatever came of it."""
    yield
    node.run("rm -f /var/lib/dpkg/updates/0001; dpkg --purge --force-all docker-ce containerd.io broken")
    node.run("pkill -f [c]reate_server || true")


def install_foreign(node: Node, name: str, relations: str, how: str = "install") -> None:
    control = FOREIGN.format(name=name, relations=relations)
    node.run(f"mkdir -p /f/{name}/DEBIAN && cat > /f/{name}/DEBIAN/control <<'END'\n{control}END")
    node.run(f"cd /f && dpkg-deb --build {name} >/dev/null && dpkg --{how} --force-depends {name}.deb && rm -r /f")


def unfit(node: Node, **changes: str) -> dict[str, str]:
    """What is wrong, but for what a container without systemd is."""
    found = node.problems(**changes)
    assert found.pop("systemd")
    return found


@pytest.fixture
def docker_ce(node: Node) -> None:
    install_foreign(node, "containerd.io", CONTAINERD_IO)
    install_foreign(node, "docker-ce", DOCKER_CE)


def test_a_bare_node_is_fit_and_looking_changes_nothing(node: Node) -> None:
    before = node.run(WATCHED)
    assert unfit(node) == {}
    assert node.run(WATCHED) == before


@pytest.mark.usefixtures("docker_ce")
def test_docker_of_somebody_else_is_named_until_it_is_taken_over(node: Node) -> None:
    found = unfit(node)
    assert "somebody else's containers are run by docker-ce (5:27.0)" in found["container engine"]
    assert "apt would remove containerd.io, docker-ce." in found["packages"]
    assert "write `take_over: [container_engine]` at the node" in found["container engine"]
    assert unfit(node, more="agent_port: 6001, take_over: [container_engine]") == {}


def test_what_is_held_and_what_is_half_installed_is_named(node: Node) -> None:
    install_foreign(node, "containerd.io", CONTAINERD_IO)
    node.run("apt-mark hold containerd.io")
    found = unfit(node)
    assert "held are containerd.io" in found["packages"]
    assert "apt-mark unhold" in found["packages"]
    node.run("apt-mark unhold containerd.io")
    install_foreign(node, "broken", "", "unpack")
    assert "not wholly installed: broken. Hint: run `dpkg --configure -a" in unfit(node)["dpkg"]
    node.run("touch /var/lib/dpkg/updates/0001")
    assert "dpkg was interrupted" in unfit(node)["dpkg"]


def test_a_busy_port_is_named_with_its_process(node: Node) -> None:
    program = "import socket, time; s = socket.create_server(('', 6001)); time.sleep(600)"
    node.start(f'python3 -c "{program}"')
    node.run("until grep -q ':1771 ' /proc/net/tcp; do sleep 0.1; done")
    assert re.search(r"port 6001 is held by python3 \(pid \d+, .*stop it", unfit(node)["ports"])
    assert unfit(node, more="agent_port: 6002") == {}


def test_a_database_of_somebody_else_is_named_until_it_is_taken_over(node: Node) -> None:
    said = node.play("preflight", node.site(roles="master", more=""), preflight.PUBLISHED)
    assert said.published["near"][preflight.PRESENT]["clusters"] == []
    debs = {deb.name: deb for deb in node.bundle.of_kind(DebianArtifact) if "debian12" in deb.targets}
    wanted = needed(debs, "postgresql-15", node.run("dpkg-query -Wf '${Package} '").split())
    node.run(
        "mkdir -p /debs && cd /debs && "
        + " && ".join(f"ln -s /media/penstock/blobs/sha256/{debs[n].sha256} {n}.deb" for n in wanted)
    )
    node.run("DEBIAN_FRONTEND=noninteractive dpkg --install /debs/*.deb && pg_ctlcluster 15 main start")
    (reason,) = unfit(node, roles="master", more="").values()
    assert "port 5432 is held by postgres" in reason, "systemd did not start it"
    node.run("runuser -u postgres -- createdb theirs")
    found = unfit(node, roles="master", more="")
    assert "the PostgreSQL cluster 15/main (port 5432) has databases of somebody else: theirs" in found["database"]
    assert "database" not in unfit(node, roles="master", more="take_over: [database]")
    node.run("touch /etc/postgresql/15/main/conf.d/penstock.conf")
    assert "database" not in unfit(node, roles="master", more=""), "by now it is Penstock's"
    node.run("rm /etc/postgresql/15/main/conf.d/penstock.conf; pg_createcluster 15 other")
    assert (
        "clusters of somebody else: 15/main (port 5432), 15/other (port 5433)"
        in unfit(node, roles="master", more="")["database"]
    )


def needed(debs: dict[str, DebianArtifact], name: str, present: list[str]) -> list[str]:
    """Return a package of the bundle and what it depends on, but for what is there."""
    found: list[str] = []
    wanted = [name]
    while wanted:
        each = wanted.pop()
        if each in found or each in present or each not in debs:
            continue
        found.append(each)
        for line in re.findall(r"^(?:Pre-)?Depends: (.*)$", debs[each].metadata.stanza, re.MULTILINE):
            wanted += re.findall(r"(?:^|, |\| )([a-z0-9.+-]+)", line)
    return found


def test_each_file_of_others_is_kept_once(node: Node) -> None:
    node.run("mkdir -p /etc/docker && echo first > /etc/docker/daemon.json && chmod 640 /etc/docker/daemon.json")
    node.run("mkdir -p /etc/apt/sources.list.d && echo deb > /etc/apt/sources.list.d/docker.list")

    def kept() -> list[str]:
        result = node.play("kept_files", node.site(), (rollout.KEPT,))
        result.require_success()
        said: list[str] = result.published["near"][rollout.KEPT]
        assert (result.nodes["near"].changed == 0) == (not said)
        return said

    folder = "/var/lib/penstock/kept"
    first = kept()
    assert {"/etc/docker/daemon.json", "/etc/apt/sources.list.d/docker.list", "/etc/hosts"} <= set(first)
    assert (
        node.run(f"cat {folder}/etc/docker/daemon.json; stat -c %a {folder}/etc/docker/daemon.json {folder}")
        == "first\n640\n700\n"
    )
    record = json.loads(node.run(f"cat {folder}/record.json"))
    assert (record["/etc/docker/daemon.json"], record["/etc/pip.conf"]) == ("kept", "absent")
    assert record[r"/etc/systemd/system/mnt-some\x2ddata.mount"] == "absent"
    node.run("echo ours > /etc/docker/daemon.json; echo ours > /etc/pip.conf; rm /etc/apt/sources.list.d/docker.list")
    assert kept() == []
    assert node.run(f"cat {folder}/etc/docker/daemon.json") == "first\n"
    node.run("echo deb > /etc/apt/sources.list.d/later.list")
    assert kept() == ["/etc/apt/sources.list.d/later.list"]


def test_what_an_earlier_release_wrote_is_not_taken_for_somebody_elses(node: Node) -> None:
    node.run("rm -rf /var/lib/penstock/kept && mkdir -p /etc/penstock/pki && touch /etc/penstock/pki/node.crt")
    result = node.play("kept_files", node.site(), (rollout.KEPT,))
    assert "/etc/docker/daemon.json" not in result.published["near"][rollout.KEPT]
    assert json.loads(node.run("cat /var/lib/penstock/kept/record.json"))["/etc/docker/daemon.json"] == "ours"
