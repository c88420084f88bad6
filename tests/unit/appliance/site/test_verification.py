"""The verdict, from what nodes say about themselves."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.site.model import Site, load
from appliance.site.verification import Verdict, judge, published
from common.yaml_document import parse
from reservoir.contents.artifact import Artifact, DebianArtifact, PythonArtifact
from reservoir.intake.store import Store
from reservoir.intake.take import take
from reservoir.publication.publish import publish
from tests.unit.reservoir.parts import STANZA, artifact, make_bundle, wheel

EXAMPLE = Path(__file__).parents[4] / "inventory/example/site.yml"
RESTART = "Hint: run `systemctl daemon-reload; systemctl restart"
STARTED = {"since": 1_767_225_600, "newer": [], "replaced": False}
APT = "https://reservoir:8443/apt/"


@pytest.fixture
def site() -> Site:
    return load(parse(EXAMPLE.read_text(), "site.yml"))


def node(**special: Any) -> dict[str, Any]:
    return {
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0",
        "machine": "x86_64",
        "penstock": {},
        "packages": {"chrony": "4.3-2"},
        "services": {"chrony.service": "active"},
        "running": {"chrony.service": STARTED},
        "ports": [22],
        "default_routes": [],
        "outside": "Network is unreachable",
        "package_sources": [APT],
        "pip_index": "https://reservoir:8443/pypi/simple/",
        "time": {"reference": "10.71.8.10", "local": False, "stratum": 9, "offset_s": 0.00002, "synchronised": True},
        "docker": None,
        "api": {"ok": True, "detail": ""},
        "certificate": {"name": "", "ends": "Mar  1 00:00:00 2028 GMT", "ok": True, "detail": "", "crl": "c0de"},
        "mounts": {},
        "exports": {},
        "limits": {},
        **special,
    }


def ways(**container: str) -> dict[str, Any]:
    """What a container and its worker are told where all is well, or what is said instead to the container."""
    services = {f"10.71.8.10:{port}": "" for port in (443, 56789, 9443, 8443)}
    closed = {"10.71.8.13:2049": "Connection refused", "172.17.0.9:8765": "No route to host"}
    told = {**services, **closed, **container}
    return {"tried": {way: {"container": said, "node": ""} for way, said in told.items()}, "detail": ""}


@pytest.fixture
def evidence() -> dict[str, Any]:
    gpus = [{"index": index, "simulated": True} for index in range(4)]
    worker = node(
        ports=[22, 6001],
        docker={"version": "20.10.24", "driver": "overlay2", "root": "/var/lib/docker"},
        penstock={"agent": "0.1.0"},
        gpu_library={"ok": True, "detail": ""},
        ways=ways(),
    )
    return {
        "master1": node(
            ports=[22, 443, 5000, 8443, 9443, 56789, 56790],
            package_sources=["file:/var/lib/penstock/reservoir/current/apt/"],
            penstock={"site": "0.1.0", "api": "0.1.0"},
            database={"ok": True, "detail": ""},
            nodes={
                "ok": True,
                "detail": "",
                "nodes": [{"name": name, "state": "ready", "gpus": gpus} for name in ("worker1", "worker2")],
            },
        ),
        "worker1": worker,
        "worker2": deepcopy(worker),
        "storage1": node(ports=[22, 2049], exports={"/srv/archive": {"ok": True, "detail": ""}}),
    }


@pytest.fixture(autouse=True)
def _certificates(evidence: dict[str, Any]) -> None:
    for name, seen in evidence.items():
        seen["certificate"] = seen["certificate"] | {"name": name}


def verdict(site: Site, evidence: dict[str, Any], silent: dict[str, str] | None = None) -> Verdict:
    return judge(site, evidence, silent or {}, "2026-01-01T00:00:00Z")


def bad(site: Site, evidence: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = verdict(site, evidence)
    return [(name, c.name, c.evidence) for name, node in found.nodes.items() for c in node.checks if not c.ok]


def test_a_site_where_all_is_well(site: Site, evidence: dict[str, Any]) -> None:
    assert bad(site, evidence) == []
    found = verdict(site, evidence)
    assert found.ok
    plain = found.json()
    assert (plain["ok"], plain["site"], plain["time"]) == (True, "lab", "2026-01-01T00:00:00Z")
    assert {name: node["ok"] for name, node in plain["nodes"].items()} == dict.fromkeys(evidence, True)
    assert plain["nodes"]["worker1"]["checks"][0]["name"] == "answers"
    assert plain["nodes"]["master1"]["facts"]["versions"]["penstock (api)"] == "0.1.0"


@pytest.mark.parametrize(
    ("node", "changes", "name", "said"),
    [
        ("worker1", {"services": {"docker.service": "failed"}}, "docker.service runs", "failed"),
        ("worker1", {"ports": [22]}, "service ports are open", "nothing listens on 6001"),
        (
            "master1",
            {"ports": [22, 443, 8443]},
            "service ports are open",
            "nothing listens on 5000, 9443, 56789, 56790",
        ),
        ("storage1", {"ports": [22]}, "service ports are open", "nothing listens on 2049"),
        ("worker1", {"outside": ""}, "network is closed", "no default route; 192.0.2.1: it answers"),
        (
            "worker1",
            {"package_sources": [APT, "https://mirror.example/debian"]},
            "packages come from the reservoir alone",
            f"{APT}, https://mirror.example/debian",
        ),
        ("worker1", {"package_sources": []}, "packages come from the reservoir alone", "no package source"),
        (
            "worker1",
            {"package_sources": ["file:/var/lib/penstock/reservoir/current/apt/"]},
            "packages come from the reservoir alone",
            "file:/var/lib/penstock/reservoir/current/apt/",
        ),
        ("worker1", {"pip_index": ""}, "Python packages come from the reservoir alone", "pip has no index of the site"),
        ("worker1", {"time": None}, "clock follows the site", "chrony does not answer"),
        (
            "worker1",
            {"time": {"reference": "x", "local": False, "offset_s": -1.5, "synchronised": True}},
            "clock follows the site",
            "-1500.000 ms to x",
        ),
        (
            "worker1",
            {"time": {"reference": "x", "local": False, "offset_s": 0.0, "synchronised": False}},
            "clock follows the site",
            "+0.000 ms to x, not synchronised",
        ),
        ("storage1", {"api": {"ok": False, "detail": "HTTP 502"}}, "control API answers this node", "HTTP 502"),
        ("master1", {"database": {"ok": False, "detail": "no role"}}, "database answers", "no role"),
        (
            "worker1",
            {"gpu_library": {"ok": False, "detail": "libdl.so.2 => not found"}},
            "library of GPU shares is the reservoir's and loads",
            "libdl.so.2 => not found",
        ),
        (
            "worker2",
            {"gpu_library": None},
            "library of GPU shares is the reservoir's and loads",
            "it was not looked at",
        ),
        ("worker2", {"docker": None}, "container engine answers", "Docker does not answer"),
        ("worker2", {"mounts": {"/mnt/penstock": None}}, "/mnt/penstock is mounted", "not mounted"),
        (
            "worker2",
            {"mounts": {"/mnt/penstock": ["rw", "nosuid"]}},
            "/mnt/penstock is mounted",
            "mounted without nodev",
        ),
        (
            "master1",
            {"limits": {"PENSTOCK-EDGE": {"ok": False, "detail": "its rule is not there"}}},
            "connections are limited by PENSTOCK-EDGE",
            "its rule is not there",
        ),
        ("worker1", {"ways": None}, "sessions are kept apart", "nothing was tried"),
        ("worker1", {"ways": {"tried": {}, "detail": "no bridge"}}, "sessions are kept apart", "no bridge"),
        ("storage1", {"exports": {"/srv/archive": {"ok": False, "detail": "no"}}}, "/srv/archive is exported", "no"),
    ],
)
def test_one_fault_is_one_bad_check(
    site: Site, evidence: dict[str, Any], node: str, changes: dict[str, Any], name: str, said: str
) -> None:
    evidence[node].update(changes)
    assert bad(site, evidence) == [(node, name, said)]


@pytest.mark.parametrize(
    ("registered", "said"),
    [
        (None, "the control API does not list this node"),
        ({"state": "lost", "gpus": [{"simulated": True}] * 4}, "lost, 4 GPUs, 4 of them simulated"),
        (
            {"state": "ready", "gpus": [{"simulated": True}] * 3},
            "ready, 3 GPUs, 3 of them simulated where the site file has 4",
        ),
        (
            {"state": "ready", "gpus": [{"simulated": True}], "enforcement": "none"},
            "ready, 1 GPUs, 1 of them simulated, shares held by none where the site file has 4",
        ),
        ({"state": "ready", "gpus": [{"simulated": False}]}, "ready, 1 GPUs where the site file has 4"),
    ],
)
def test_an_agent_is_as_the_site_file_says(
    site: Site, evidence: dict[str, Any], registered: dict[str, Any] | None, said: str
) -> None:
    nodes = evidence["master1"]["nodes"]["nodes"]
    evidence["master1"]["nodes"]["nodes"] = [nodes[0], *([{"name": "worker2"} | registered] if registered else [])]
    assert bad(site, evidence) == [("worker2", "agent is registered and ready", said)]


def test_a_node_that_says_nothing_fails_with_the_reason(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["storage1"]
    found = verdict(site, evidence, {"storage1": "Connection timed out"})
    assert not found.ok
    assert [(c.ok, c.evidence) for c in found.nodes["storage1"].checks] == [(False, "Connection timed out")]


def test_a_node_that_was_left_out_of_the_last_deploy_is_named(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["worker1"]
    missed = {"worker1": "left out", "worker2": "left out"}
    found = judge(site, evidence, {}, "now", missed=missed)
    for name in missed:
        check = found.nodes[name].checks[-1]
        assert (check.name, check.ok) == ("the last deploy came to this node", False)
        assert "Hint: run `penstock site deploy`" in check.evidence
    assert found.nodes["master1"].checks[-1].name != "the last deploy came to this node"


def test_without_the_master_every_worker_is_in_doubt(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["master1"]
    assert [(name, check) for name, check, _ in bad(site, evidence)] == [
        ("master1", "answers"),
        ("worker1", "agent is registered and ready"),
        ("worker2", "agent is registered and ready"),
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"newer": ["/etc/penstock/agent.env"]}, "/etc/penstock/agent.env changed after it started"),
        ({"replaced": True}, "its program was replaced after it started"),
    ],
)
def test_a_service_that_an_interrupted_upgrade_did_not_restart(
    site: Site, evidence: dict[str, Any], change: dict[str, Any], told: str
) -> None:
    evidence["worker1"]["running"]["penstock-agent.service"] = STARTED | change
    assert bad(site, evidence) == [
        (
            "worker1",
            "penstock-agent.service runs what is installed",
            f"0.1.0 since 2026-01-01T00:00:00Z: {told}. {RESTART} penstock-agent.service` on worker1",
        )
    ]


def test_an_agent_and_an_api_that_say_an_older_version_than_is_installed(site: Site, evidence: dict[str, Any]) -> None:
    evidence["master1"]["running"]["penstock-api.service"] = STARTED
    evidence["master1"]["api"]["detail"] = {"status": "healthy", "version": "0.0.9"}
    evidence["worker1"]["running"]["penstock-agent.service"] = STARTED
    for listed in evidence["master1"]["nodes"]["nodes"]:
        listed["agent_version"] = "0.0.8"
    assert [(node, name, said.partition(". Hint")[0]) for node, name, said in bad(site, evidence)] == [
        (
            "master1",
            "penstock-api.service runs what is installed",
            "0.0.9 since 2026-01-01T00:00:00Z: it runs 0.0.9, and 0.1.0 is installed",
        ),
        (
            "worker1",
            "penstock-agent.service runs what is installed",
            "0.0.8 since 2026-01-01T00:00:00Z: it runs 0.0.8, and 0.1.0 is installed",
        ),
    ]


def test_packages_that_are_not_those_of_the_publication(site: Site, evidence: dict[str, Any]) -> None:
    served = {"bookworm": {"chrony": {"4.3-3"}}, "trixie": {"chrony": {"4.3-2"}}, "python": {"penstock": {"0.2.0"}}}
    del evidence["worker1"], evidence["worker2"]
    found = judge(site, evidence, {}, "2026-01-01T00:00:00Z", served)
    (said,) = [check.evidence for check in found.nodes["master1"].checks if "versions" in check.name]
    assert said == (
        "chrony 4.3-2, and 4.3-3 is published: "
        "run `apt-get update; apt-get install --allow-downgrades chrony=4.3-3` on master1; "
        "penstock (api) 0.1.0, and 0.2.0 is published: run `penstock site deploy`; "
        "penstock (site) 0.1.0, and 0.2.0 is published: run `penstock site deploy`"
    )
    assert [check.ok for check in found.nodes["storage1"].checks if "versions" in check.name] == [True]


def test_what_a_site_serves(tmp_path: Path) -> None:
    package = wheel(tmp_path, "penstock", "0.2.0")
    deb = tmp_path / "chrony_4.3-2_amd64.deb"
    deb.write_bytes(b"deb")
    made: list[tuple[Artifact, Path]] = [
        (artifact(package, PythonArtifact, "penstock", "0.2.0"), package),
        (artifact(deb, DebianArtifact, "chrony", "4.3-2", stanza=STANZA.format(name="chrony", version="4.3-2")), deb),
    ]
    root = tmp_path / "site"
    assert published(Store(root)) == {}
    take(make_bundle(tmp_path, Ed25519PrivateKey.generate(), made=made), root)
    publish(root)
    assert published(Store(root)) == {"python": {"penstock": {"0.2.0"}}, "bookworm": {"chrony": {"4.3-2"}}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ok": False, "detail": "error 23 at 0 depth lookup: certificate revoked"}, "certificate revoked"),
        ({"name": "worker2"}, "it is that of worker2"),
        ({"name": ""}, "it is that of nobody"),
        ({"crl": "0ld"}, "the node has not the site's list of revoked certificates"),
    ],
)
def test_a_certificate_that_does_not_count_is_found(
    site: Site, evidence: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    assert judge(site, evidence, {}, "2026-01-01T00:00:00Z", revoked="c0de").ok
    evidence["worker1"]["certificate"] |= changes
    found = judge(site, evidence, {}, "2026-01-01T00:00:00Z", revoked="c0de")
    [check] = [check for check in found.nodes["worker1"].checks if not check.ok]
    assert check.name == "certificate is the node's and counts"
    assert said in check.evidence


def test_a_node_that_reports_and_is_no_worker_of_the_site_is_found(site: Site, evidence: dict[str, Any]) -> None:
    listed = evidence["master1"]["nodes"]["nodes"]
    listed.append({"name": "storage1", "state": "lost", "gpus": []})
    assert bad(site, evidence) == []
    listed[-1]["state"] = "ready"
    told = "storage1 reports, and is no worker of the site"
    assert bad(site, evidence) == [("master1", "agents are those of the site's workers", told)]


def test_a_session_that_lacks_a_service_or_reaches_more_is_named(site: Site, evidence: dict[str, Any]) -> None:
    evidence["worker1"]["ways"] = ways(**{"10.71.8.10:443": "timed out"})
    evidence["worker2"]["ways"] = ways(**{"10.71.8.13:2049": ""})
    assert bad(site, evidence) == [
        ("worker1", "sessions reach the site's services", "10.71.8.10:443: timed out"),
        ("worker2", "sessions reach nothing else", "a container reached 10.71.8.13:2049"),
    ]


def test_what_the_worker_does_not_reach_either_proves_nothing(site: Site, evidence: dict[str, Any]) -> None:
    for way in ("10.71.8.13:2049", "172.17.0.9:8765"):
        evidence["worker1"]["ways"]["tried"][way]["node"] = "Connection refused"
    assert bad(site, evidence) == [
        ("worker1", "sessions reach nothing else", "nothing answers to this node itself, so nothing is proven")
    ]
