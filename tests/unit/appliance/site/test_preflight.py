"""The verdict on what stands on a node before a deploy, and what the role is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.site import inventory, preflight, ways
from appliance.site.model import Site
from appliance.site.site_file import load
from common.yaml_document import parse
from reservoir.contents.artifact import DebianArtifact
from reservoir.contents.bundle import Bundle
from tests.unit.appliance.site.test_needs import LARGE

ROOT = Path(__file__).parents[4]
SITE = """\
name: north
nodes:
  - {{name: first, address: 10.0.0.1, roles: [reservoir, master]}}
  - {{name: second, address: 10.0.0.2, roles: [worker], agent_port: 6001, {more}}}
  - {{name: third, address: 10.0.0.3, roles: [storage]}}
storage: [{{kind: nfs, name: data, path: /srv/data, server: kernel}}]
"""
QUIET: dict[str, Any] = {
    "locked": "",
    "broken": "",
    "simulation": {"removed": [], "held": [], "error": ""},
    "engines": {},
    "containers": {"containerd-shim": 0, "conmon": 0},
    "listening": [],
    "clusters": [],
    "exports": [],
    "docker_root": {"before": "/var/lib/docker", "containers": 0, "foreign": [], "kind": "", "real": ""},
    "web_server": False,
    "recorded": [],
}
RECORD = ["/etc/docker/daemon.json", "/etc/exports"]
CLUSTER = {"version": "15", "name": "main", "port": 5432, "databases": ["postgres"], "ours": False}


def site(more: str = "") -> Site:
    return load(parse(SITE.format(more=more), "site.yml"))


def found(name: str, more: str = "", **present: Any) -> list[tuple[str, str]]:
    """What is found on a node that is quiet but for `present`: name and reason."""
    described = site(more)
    node = next(node for node in described.nodes if node.name == name)
    judged = preflight.judge(described, node, QUIET | present, "15")
    return [(about, reason) for about, reason, hint in judged if hint]


def root_of(before: str = "/var/lib/docker", containers: int = 0, *foreign: str, **more: str) -> dict[str, Any]:
    where = {"before": before, "containers": containers, "foreign": list(foreign), "kind": "", "real": ""}
    return {"docker_root": where | more}


def test_containers_are_not_left_where_docker_looks_no_more() -> None:
    more = "docker_root: /data/docker"
    assert found("second", more, **root_of()) == []
    assert found("second", more, **root_of("/var/lib/docker", 3)) == [
        ("docker root", "3 containers of Docker lie in /var/lib/docker, and not in /data/docker")
    ]
    # and back
    assert found("second", **root_of("/data/docker", 3)) == [
        ("docker root", "3 containers of Docker lie in /data/docker, and not in /var/lib/docker")
    ]
    assert found("second", more, **root_of("/var/lib/docker", 0, "home", "models")) == [
        ("docker root", "/data/docker is to be Docker's alone, and holds home, models")
    ]
    assert found("third", **root_of("/data/docker", 3)) == [], "no worker"


def test_docker_has_a_folder_of_a_disk_of_its_node_by_its_own_name() -> None:
    more = "docker_root: /data/docker"
    assert found("second", more, **root_of(kind="nfs4")) == [
        ("docker root", "/data/docker is on a file system of the kind nfs4, on which Docker can lay no layers")
    ]
    assert found("second", more, **root_of(real="/mnt/ssd/docker")) == [
        ("docker root", "/data/docker leads to /mnt/ssd/docker, for whose mount Docker would not wait")
    ]
    assert found("second", **root_of(kind="nfs4", real="/mnt/ssd/docker")) == [], "nobody chose where it lies"


def test_who_brings_containers_along_ends_them_first() -> None:
    """Docker's containers run on without it, and what they write then would stay behind."""
    described = site()
    node = next(node for node in described.nodes if node.name == "second")
    judged = preflight.judge(described, node, QUIET | root_of("/data/docker", 3), "15")
    (hint,) = [hint for about, _, hint in judged if about == "docker root"]
    assert hint.index("docker stop") < hint.index("systemctl stop docker.socket docker") < hint.index("rsync")
    assert "`docker_root: /data/docker`" in hint


def simulation(**changes: Any) -> dict[str, Any]:
    return {"simulation": QUIET["simulation"] | changes}


def held(port: int, process: str = "", unit: str = "") -> list[dict[str, Any]]:
    return [{"port": port, "process": process, "pid": 7 if process else 0, "unit": unit}]


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_a_bare_node_is_fit(name: str) -> None:
    assert found(name) == []


@pytest.mark.parametrize(
    ("name", "present"),
    [
        (
            "second",
            {"engines": {"docker.io": "20.10", "docker": "running"}, "containers": {"containerd-shim": 3, "conmon": 0}},
        ),
        ("second", {"listening": held(6001, preflight.LISTENER)}),
        ("second", {"listening": held(6001, "python", "penstock-agent.service")}),
        ("first", {"listening": held(443, "nginx", "penstock-edge.service")}),
        ("first", {"listening": held(443, "nginx", "nginx.service")}),
        ("first", {"listening": held(5001, "registry", "docker-registry.service")}),
        ("first", {"listening": held(5432, "postgres", "postgresql@15-main.service")}),
        ("first", {"clusters": [CLUSTER | {"ours": True, "databases": ["penstock", "theirs"]}]}),
        ("third", {"listening": held(2049), "exports": ["/srv/data 10.0.0.2(rw)"]}),
    ],
)
def test_a_node_that_is_deployed_is_fit(name: str, present: dict[str, Any]) -> None:
    assert found(name, recorded=RECORD, **present) == []
    assert found(name, recorded=None, **present) == [], "one of an earlier release, which kept no record"


@pytest.mark.parametrize(
    ("name", "present", "about", "reason"),
    [
        ("third", {"locked": "apt-get (pid 9)"}, "dpkg", "apt-get (pid 9) is at work with apt or dpkg"),
        ("third", {"broken": "dpkg was interrupted"}, "dpkg", "dpkg was interrupted"),
        ("third", simulation(removed=["docker-ce"]), "packages", "apt would remove docker-ce"),
        (
            "third",
            simulation(error="E: broken packages", held=["libc6"]),
            "packages",
            "apt cannot install what the node needs; held are libc6: E: broken packages",
        ),
        ("second", {"listening": held(6001, "nc")}, "ports", "port 6001 is held by nc (pid 7, no unit)"),
        (
            "first",
            {"listening": held(443, "nginx", "nginx.service"), "web_server": True},
            "ports",
            "port 443 is held by nginx (pid 7, nginx.service)",
        ),
        ("third", {"listening": held(2049)}, "ports", "port 2049 is held by the kernel"),
        (
            "first",
            {"clusters": [CLUSTER | {"version": "13"}]},
            "database",
            "PostgreSQL has clusters of somebody else: 13/main (port 5432)",
        ),
        (
            "first",
            {"clusters": [CLUSTER, CLUSTER | {"name": "app", "port": 5433}]},
            "database",
            "PostgreSQL has clusters of somebody else: 15/main (port 5432), 15/app (port 5433)",
        ),
    ],
)
def test_what_is_named(name: str, present: dict[str, Any], about: str, reason: str) -> None:
    assert (about, reason) in found(name, **present)


@pytest.mark.parametrize(
    ("engines", "running", "reason"),
    [
        ({"docker-ce": "5:27", "containerd.io": "1.7"}, (2, 0), "run by docker-ce (5:27); 2 are running"),
        ({"docker.io": "20.10", "containerd": "1.6"}, (0, 0), "run by docker.io (20.10); 0 are running"),
        ({"containerd": "1.6"}, (1, 0), "run by containerd (1.6); 1 are running"),
        ({"podman": "4.3"}, (0, 2), "run by podman (4.3); 2 are running"),
        ({"k3s-agent": "running"}, (5, 0), "run by k3s-agent (running); 5 are running"),
    ],
)
def test_a_foreign_container_engine_is_refused_or_taken_over(
    engines: dict[str, str], running: tuple[int, int], reason: str
) -> None:
    present: dict[str, Any] = {
        "engines": engines,
        "containers": dict(zip(("containerd-shim", "conmon"), running, strict=True)),
    }
    assert found("second", **present) == [("container engine", f"somebody else's containers are {reason}")]
    assert found("second", "take_over: [container_engine]", **present) == []
    assert found("third", **present) == [], "no worker"


def test_what_nobody_uses_is_left_alone() -> None:
    assert found("second", engines={"podman": "4.3", "containerd": "1.6"}) == []


def test_a_worker_that_stands_for_a_cluster_may_be_of_it() -> None:
    more = "kubernetes: {api: https://k}"
    assert found("second", more, engines={"kubelet": "running"}) == []


def test_taking_over_docker_takes_over_its_packages_and_no_others() -> None:
    removed = simulation(removed=["docker-ce", "containerd.io", "apache2"])
    assert found("second", "take_over: [container_engine]", **removed) == [("packages", "apt would remove apache2")]
    assert found("second", "take_over: [container_engine, packages]", **removed) == []


@pytest.mark.parametrize(
    ("databases", "said"), [(["app", "postgres"], "has databases of somebody else: app"), (None, "not tell")]
)
def test_databases_of_somebody_else_are_named(databases: list[str] | None, said: str) -> None:
    ((about, reason),) = found("first", clusters=[CLUSTER | {"databases": databases}])
    assert about == "database"
    assert said in reason


def test_a_cluster_without_databases_is_nobodys() -> None:
    assert found("first", clusters=[CLUSTER]) == []


def test_exports_and_web_servers_of_somebody_else() -> None:
    assert found("third", exports=["/srv *(rw)"]) == [("exports", "it exports folders of somebody else: /srv *(rw)")]
    assert found("first", web_server=True) == [("web server", "nginx serves something of somebody else")]
    assert found("second", web_server=True) == [], "nothing of Penstock's uses nginx there"


def test_each_hint_says_what_to_write_in_the_site_file() -> None:
    described = site()
    judged = preflight.judge(described, described.nodes[2], QUIET | {"exports": ["/srv *(rw)"]}, "15")
    (hint,) = [hint for _, _, hint in judged]
    assert "write `take_over: [exports]` at the node in the site file" in hint


def test_the_role_is_asked_for_packages_and_ports_of_the_nodes_roles() -> None:
    stanza = "Package: chrony\nVersion: 4\nDescription: a {{ clock }}\n that follows\nDepends: libc6,\n adduser\n"
    deb: dict[str, Any] = {
        "kind": "debian",
        "name": "chrony",
        "version": "4",
        "filename": "chrony_4_amd64.deb",
        "origin": "x",
    }
    deb |= {"sha256": "0" * 64, "size": 7, "targets": ["d12"], "metadata": {"stanza": stanza}}
    target = {"name": "d12", "os": "debian", "release": "bookworm", "arch": "amd64", "python": "3.11", "osv": None}
    bundle = Bundle.model_construct(
        targets=[type("Target", (), target)], artifacts=[DebianArtifact.model_validate(deb)]
    )
    hosts = inventory.build(site(), version="1")
    asked = preflight.with_questions(hosts, site(), [bundle], ROOT / "roles")["all"]
    index = "Package: chrony\nVersion: 4\nDepends: libc6,\n adduser\nFilename: chrony_4_amd64.deb\nSize: 7\n"
    assert asked["vars"]["site_indexes"] == {"bookworm": index}
    assert asked["hosts"]["first"]["node_ports"] == [443, 5000, 5001, 5432, 8443, 9443, 56789, 56790]
    assert asked["hosts"]["second"]["node_ports"] == [6001]
    assert {"docker.io", "chrony"} <= set(asked["hosts"]["second"]["node_packages"])
    assert "docker-cli" not in asked["hosts"]["second"]["node_packages"], "that is of the other release"
    assert "nfs-kernel-server" in asked["hosts"]["third"]["node_packages"]
    assert "nfs-ganesha" not in asked["hosts"]["third"]["node_packages"]
    assert "node_packages" not in hosts["all"]["hosts"]["first"]
    agent = {"protocol": "tcp", "port": 6001, "callers": ["10.0.0.1"]}
    assert agent in asked["hosts"]["second"]["node_listens"]
    assert asked["vars"]["site_listen_s"] == ways.ANSWER_S + 3
    again = preflight.with_questions(hosts, site(), [bundle], ROOT / "roles")["all"]
    assert asked["vars"]["site_preflight"] != again["vars"]["site_preflight"], "each run has a name of its own"


def test_a_table_has_what_nodes_say_of_each_other() -> None:
    tried: dict[str, dict[str, Any]] = {
        "second": {ways.TRIED: {"tcp/10.0.0.1:8443": "Connection refused"}},
        "first": {ways.LISTENS: ["tcp/8443"], ways.LISTENED: ["tcp/8443"]},
    }
    same: dict[str, Any] = {"hostname": "debian", "machine_id": "", "mac": "", "claimants": ["02:00:00:00:00:01"]}
    machines = {name: {preflight.MACHINE: LARGE | same} for name in ("first", "second")}
    published = {name: tried[name] | machines[name] for name in machines}
    found = preflight.table(site(), Bundle.model_construct(targets=[], artifacts=[]), published)
    wrong = {name: [check.id for check in checks if check.state == "fail"] for name, checks in found.items()}
    assert wrong == {"first": ["duplicates"], "second": ["duplicates", "ways"]}
    assert [check.state for check in found["first"] if check.id == "duplicates"] == ["fail", "warn"]
