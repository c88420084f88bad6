"""The verdict, from what nodes say about themselves."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.site.model import Site
from appliance.site.site_file import load
from appliance.site.verdict import Verdict
from appliance.site.verification import judge, published
from common.checks import Check, CheckState
from common.yaml_document import parse
from reservoir.contents.artifact import Artifact, DebianArtifact, PythonArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import publish
from tests.unit.reservoir.parts import STANZA, artifact, make_bundle, take, wheel

EXAMPLE = Path(__file__).parents[4] / "inventory/example/site.yml"
STARTED = {"since": 1_767_225_600, "newer": [], "replaced": False}
APT = "https://reservoir:8443/apt/"
PYPI = "https://reservoir:8443/pypi/simple/"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = int((NOW + timedelta(days=31)).timestamp())


@pytest.fixture
def site() -> Site:
    return load(parse(EXAMPLE.read_text(), "site.yml"))


def answer(name: str, *, until: int = LATER, wrong: str = "") -> dict[str, Any]:
    """What a service answers, or what is wrong with it."""
    return {"ok": not wrong, "detail": wrong or "HTTP 200", "until": until, "url": f"https://{name}/"}


def node(**special: Any) -> dict[str, Any]:
    return {
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0",
        "machine": "x86_64",
        "penstock": {},
        "packages": {"chrony": "4.3-2"},
        "services": {"chrony.service": "active"},
        "enabled": {"chrony.service": "enabled"},
        "running": {"chrony.service": STARTED},
        "ports": [22],
        "default_routes": [],
        "outside": "Network is unreachable",
        "package_sources": [APT],
        "package_proxies": [],
        "pip_sources": {"index-url": [PYPI], "extra-index-url": [], "find-links": []},
        "time": {"reference": "10.71.8.10", "local": False, "stratum": 9, "offset_s": 0.00002, "synchronised": True},
        "docker": None,
        "pci_gpus": 0,
        "api": {"ok": True, "detail": ""},
        "certificate": {"name": "", "until": LATER, "ok": True, "detail": "", "crl": "c0de"},
        "authority": LATER,
        "calls": {name: answer(name) for name in ("console", "API", "apps", "release", "index")},
        "mounts": {},
        "storages": {},
        "exports": {},
        "limits": {},
        "firewall": {"ok": True, "detail": "all ports are closed but those of 4 rules"},
        **special,
    }


def ways(**container: str) -> dict[str, Any]:
    """What a container and its worker are told where all is well, or what is said instead to the container."""
    services = {f"10.71.8.10:{port}": "" for port in (443, 56789, 9443, 8443)}
    closed = {"10.71.8.13:2049": "Connection refused", "172.17.0.9:8765": "No route to host"}
    told = {**services, **closed, **container}
    return {"tried": {way: {"container": said, "node": ""} for way, said in told.items()}, "detail": ""}


def gpu(index: int, **special: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{index}", "parent": "", "model": "NVIDIA A100-SXM4-80GB", "simulated": True, **special}


@pytest.fixture
def evidence() -> dict[str, Any]:
    gpus = [gpu(index) for index in range(4)]
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
            audit={"ok": True, "detail": "/log can be written"},
            calls={name: answer(name) for name in ("console", "agent of worker1", "agent of worker2")},
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


def of(found: Verdict, node: str, identity: str, thing: str = "") -> Check:
    """The check of a node by its id."""
    return next(c for c in found.nodes[node].checks if c.id == identity and c.subject.endswith(thing))


def bad(site: Site, evidence: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = verdict(site, evidence)
    return [(name, c.name, c.evidence) for name, node in found.nodes.items() for c in node.checks if c.state != "ok"]


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
        (
            "worker1",
            {"enabled": {"docker.socket": "disabled"}},
            "docker.socket starts with the machine",
            "disabled",
        ),
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
            {"package_sources": [APT, "https://mirror.example/debian/"]},
            "packages come from the reservoir alone",
            "apt fetches from https://mirror.example/debian/",
        ),
        ("worker1", {"package_sources": []}, "packages come from the reservoir alone", "no package source"),
        (
            "worker1",
            {"package_sources": ["file:/var/lib/penstock/reservoir/current/apt/"]},
            "packages come from the reservoir alone",
            "apt fetches from file:/var/lib/penstock/reservoir/current/apt/",
        ),
        (
            "worker1",
            {"package_proxies": ["http://proxy.example:3128"]},
            "packages come from the reservoir alone",
            f"apt fetches from {APT}, by http://proxy.example:3128",
        ),
        (
            "worker1",
            {"pip_sources": {"index-url": []}},
            "Python packages come from the reservoir alone",
            "pip has no index of the site",
        ),
        (
            "worker1",
            {"pip_sources": {"index-url": [PYPI], "extra-index-url": ["https://mirror.example/simple"]}},
            "Python packages come from the reservoir alone",
            "pip fetches from https://mirror.example/simple",
        ),
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
        (
            "worker1",
            {"time": {"reference": "10.71.8.11", "local": False, "offset_s": 0.0, "synchronised": True}},
            "clock follows the site",
            "+0.000 ms to its own clock, and the site's is that of master1",
        ),
        (
            "worker1",
            {"time": {"reference": "", "local": True, "offset_s": 0.0, "synchronised": True}},
            "clock follows the site",
            "+0.000 ms to its own clock, and the site's is that of master1",
        ),
        ("storage1", {"api": {"ok": False, "detail": "HTTP 502"}}, "control API answers this node", "HTTP 502"),
        ("master1", {"audit": {"ok": False, "detail": "3 lines wait"}}, "audit log is written", "3 lines wait"),
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
            {"storages": {"shared": {"ok": False, "detail": "it is not mounted at /srv/shared"}}},
            "storage shared",
            "it is not mounted at /srv/shared",
        ),
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
        (
            "storage1",
            {"firewall": {"ok": False, "detail": "the table penstock_firewall refuses nothing"}},
            "other ports are closed",
            "the table penstock_firewall refuses nothing",
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
    (hint,) = [c.hint for c in verdict(site, evidence).nodes[node].checks if c.state != "ok"]
    assert hint or not changes.keys() & {"ports", "time", "docker", "ways", "enabled", "pip_sources", "audit"}


@pytest.mark.parametrize(
    ("registered", "state", "said"),
    [
        (None, "fail", "the control API does not list this node"),
        ({"state": "lost", "message": "not heard"}, "fail", "lost: not heard"),
        ({"state": "lost", "mode": "maintenance"}, "fail", "lost, maintenance"),
        ({"state": "ready", "mode": "draining"}, "warn", "ready, draining"),
        ({"state": "ready", "message": "it cannot be called"}, "warn", "ready: it cannot be called"),
        ({"state": "ready", "enforcement": "none"}, "ok", "ready; shares held by none"),
    ],
)
def test_an_agent_is_ready(
    site: Site, evidence: dict[str, Any], registered: dict[str, Any] | None, state: str, said: str
) -> None:
    nodes = evidence["master1"]["nodes"]["nodes"]
    also = [{"name": "worker2", "gpus": nodes[1]["gpus"]} | registered] if registered else []
    evidence["master1"]["nodes"]["nodes"] = [nodes[0], *also]
    found = of(verdict(site, evidence), "worker2", "agent")
    assert (found.state, found.evidence) == (state, said)
    assert bool(found.hint) is (state != "ok")


REAL = {"simulated": False}
A100 = {"count": 2, "model": "a100"}


@pytest.mark.parametrize(
    ("expected", "cards", "gpus", "state", "said"),
    [
        ({"count": 2}, 2, [gpu(0, **REAL), gpu(1, **REAL)], "ok", "2 GPUs: NVIDIA A100-SXM4-80GB"),
        ({"count": 2}, 2, [gpu(0, **REAL)], "fail", "the site file has 2; the PCI bus has 2 of NVIDIA"),
        ({"count": 8}, 0, [], "fail", "0 GPUs; the site file has 8"),
        (None, 0, [], "fail", "0 GPUs; the site file does not say that it has none"),
        ({"count": 0}, 1, [], "ok", "0 GPUs"),
        (None, 2, [gpu(0, **REAL)], "fail", "the PCI bus has 2 of NVIDIA"),
        (None, 1, [gpu(0, **REAL)], "ok", "1 GPUs"),
        (None, 1, [gpu(0, parent="GPU-7", **REAL), gpu(1, parent="GPU-7", **REAL)], "ok", "1 GPUs"),
        (A100, 2, [gpu(0, **REAL), gpu(1, **REAL)], "ok", "2 GPUs"),
        (A100, 2, [gpu(0, **REAL), gpu(1, model="T4", **REAL)], "fail", "the site file has a100, not T4"),
        (
            None,
            0,
            [gpu(0)],
            "fail",
            "1 of them simulated: NVIDIA A100-SXM4-80GB; the site file has no",
        ),
        ({"simulated": 4}, 8, [gpu(0), gpu(1), gpu(2)], "fail", "the site file has 4 simulated ones"),
        ({"simulated": 2}, 8, [gpu(0), gpu(1)], "ok", "2 GPUs, 2 of them simulated"),
        ({"simulated": 1}, 8, [gpu(0, **REAL)], "fail", "the site file has 1 simulated ones"),
    ],
)
def test_gpus_are_those_of_the_site_file(
    evidence: dict[str, Any],
    expected: dict[str, Any] | None,
    cards: int,
    gpus: list[dict[str, Any]],
    state: str,
    said: str,
) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    worker = document["nodes"][2]
    count = (expected or {}).get("simulated")
    worker |= {"simulated_gpus": {"count": count} if count else None, "gpus": None if count else expected}
    site = load(parse(yaml.safe_dump(document), "site.yml"))
    evidence["worker2"]["pci_gpus"] = cards
    evidence["master1"]["nodes"]["nodes"][1]["gpus"] = gpus
    found = of(verdict(site, evidence), "worker2", "gpus")
    assert (found.state, said in found.evidence) == (state, True), found


@pytest.mark.parametrize("service", ["console", "API", "apps", "release", "index", "registry", "agent of worker2"])
def test_a_service_that_does_not_answer_a_node_is_named_with_where_to_look(
    site: Site, evidence: dict[str, Any], service: str
) -> None:
    node = "master1" if service.startswith("agent") else "worker1"
    evidence[node]["calls"][service] = answer(service, wrong="timed out")
    [found] = [check for check in verdict(site, evidence).checks if check.state != "ok"]
    assert (found.subject, found.state) == (f"{node}: {service}", "fail")
    assert found.evidence == f"https://{service}/: timed out"
    assert {"console": "ss -ltnp", "registry": "8443 and 5000", "agent of worker2": "port 6001 of worker2"}.get(
        service, "firewall"
    ) in found.hint


@pytest.mark.parametrize(
    ("days", "state", "said"),
    [
        (31, "ok", "until 2026-02-01"),
        (30, "warn", "ends in 30 days, on 2026-01-31"),
        (8, "warn", "ends in 8 days, on 2026-01-09"),
        (7, "fail", "ends in 7 days, on 2026-01-08"),
        (1, "fail", "ends in 1 day, on 2026-01-02"),
        (0.3, "fail", "ends within a day, on 2026-01-01"),
        (-2, "fail", "ended on 2025-12-30"),
        (None, "fail", "there is none"),
    ],
)
@pytest.mark.parametrize("which", ["certificate.end", "authority.end", "call"])
def test_a_certificate_that_ends_soon(
    site: Site, evidence: dict[str, Any], which: str, days: float | None, state: str, said: str
) -> None:
    """That on the node's disk, that of the site, and that which a service really shows."""
    until = None if days is None else int((NOW + timedelta(days=days)).timestamp())
    seen = evidence["worker1"]
    if which == "certificate.end":
        seen["certificate"]["until"] = until
    elif which == "authority.end":
        seen["authority"] = until
    else:
        seen["calls"] = {"console": answer("console") | {"until": until}}
    found = of(verdict(site, evidence), "worker1", which)
    assert (found.state, said in found.evidence) == (state, True), found
    assert ("site deploy" in found.hint) is (state != "ok")


def test_a_part_that_could_not_be_looked_at_is_unknown_and_takes_nothing_else_away(
    site: Site, evidence: dict[str, Any]
) -> None:
    seen = evidence["worker1"]
    del seen["time"], seen["calls"], seen["ways"]
    seen["lost"] = {"time": "chronyc did not answer within 30 s"}
    found = judge(site, evidence, {"worker1": "the module failed"}, "2026-01-01T00:00:00Z")
    unknown = {check.id: check.evidence for check in found.checks if check.state == "unknown"}
    reason = "the module failed"
    assert unknown == {"time": "chronyc did not answer within 30 s", "call": reason, "session.ways": reason}
    assert (found.ok, found.state) == (False, "unknown")
    assert of(found, "worker1", "docker").state == "ok"


def test_what_was_not_told_in_time_has_a_hint(site: Site, evidence: dict[str, Any]) -> None:
    late = {"ok": False, "detail": "runuser did not answer within 30 s", "nodes": []}
    evidence["master1"]["nodes"] = late
    check = of(verdict(site, evidence), "worker1", "agent")
    assert (check.state, "overloaded or hangs" in check.hint) == ("unknown", True)


def test_a_node_whose_look_failed_keeps_what_it_got_from_calls(site: Site, evidence: dict[str, Any]) -> None:
    evidence["worker1"] = {"calls": evidence["worker1"]["calls"]}
    found = judge(site, evidence, {"worker1": "no space left"}, "2026-01-01T00:00:00Z")
    states = {check.id: check.state for check in found.nodes["worker1"].checks}
    assert (states["answers"], states["time"], states["call"], states["fetch"]) == ("unknown", "unknown", "ok", "ok")
    assert found.nodes["worker1"].facts["os"] == "unknown"


def test_since_when_a_check_is_as_it_is(site: Site, evidence: dict[str, Any]) -> None:
    first = verdict(site, evidence)
    first.date({})
    evidence["worker1"]["docker"] = None
    later = judge(site, evidence, {}, "2026-01-02T00:00:00Z")
    later.date(json.loads(json.dumps(first.json())))
    assert of(later, "worker1", "docker").since == "2026-01-02T00:00:00Z"
    assert of(later, "worker2", "docker").since == "2026-01-01T00:00:00Z"


def test_a_site_is_as_its_worst_check(site: Site, evidence: dict[str, Any]) -> None:
    found = verdict(site, evidence)
    for worst in (CheckState.WARN, CheckState.UNKNOWN, CheckState.FAIL):
        found.nodes["worker1"].checks.insert(0, Check("x", "x", worst, ""))
        assert found.state is worst


def test_a_node_that_says_nothing_fails_with_the_reason(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["storage1"]
    found = verdict(site, evidence, {"storage1": "Connection timed out"})
    assert not found.ok
    assert [(c.ok, c.evidence) for c in found.nodes["storage1"].checks] == [(False, "Connection timed out")]


def test_a_node_that_was_left_out_of_the_last_deploy_is_named(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["worker1"]
    missed = {"worker1": "left out", "worker2": "left out"}
    found = judge(site, evidence, {}, "2026-01-01T00:00:00Z", missed=missed)
    named = [(check.subject, check.ok, check.evidence) for check in found.checks if check.id == "deployed"]
    assert named == [("worker1", False, "left out"), ("worker2", False, "left out")]
    assert all("run `penstock site deploy`" in check.hint for check in found.checks if check.id == "deployed")


def test_without_the_master_every_worker_is_in_doubt(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["master1"]
    found = judge(site, evidence, {"master1": "no route to host"}, "2026-01-01T00:00:00Z")
    assert [(check.id, check.subject, check.state, check.evidence) for check in found.checks if not check.ok] == [
        ("answers", "master1", "fail", "no route to host"),
        *(
            (identity, worker, "unknown", "no route to host")
            for worker in ("worker1", "worker2")
            for identity in ("agent", "gpus")
        ),
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
            f"0.1.0 since 2026-01-01T00:00:00Z: {told}",
        )
    ]
    hint = of(verdict(site, evidence), "worker1", "service.current", "penstock-agent.service").hint
    assert hint == "run `systemctl daemon-reload; systemctl restart penstock-agent.service` on worker1"


def test_an_agent_and_an_api_that_say_an_older_version_than_is_installed(site: Site, evidence: dict[str, Any]) -> None:
    evidence["master1"]["running"]["penstock-api.service"] = STARTED
    evidence["master1"]["api"]["detail"] = {"status": "healthy", "version": "0.0.9"}
    evidence["worker1"]["running"]["penstock-agent.service"] = STARTED
    for listed in evidence["master1"]["nodes"]["nodes"]:
        listed["agent_version"] = "0.0.8"
    assert bad(site, evidence) == [
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
    check = of(found, "master1", "versions")
    assert check.evidence == (
        "chrony 4.3-2, and 4.3-3 is published; penstock (api) 0.1.0, and 0.2.0 is published; "
        "penstock (site) 0.1.0, and 0.2.0 is published"
    )
    assert check.hint == (
        "run `apt-get update; apt-get install --allow-downgrades chrony=4.3-3` on master1 and `penstock site deploy`"
    )
    assert [check.ok for check in found.nodes["storage1"].checks if "versions" in check.name] == [True]


def test_the_hint_takes_the_newest_version_by_debians_rules(site: Site, evidence: dict[str, Any]) -> None:
    served = {"bookworm": {"chrony": {"4.9-1", "4.10-1", "4.10~rc1-1"}}}
    check = of(judge(site, evidence, {}, "2026-01-01T00:00:00Z", served), "master1", "versions")
    assert "chrony 4.3-2, and 4.9-1, 4.10~rc1-1, 4.10-1 is published" in check.evidence
    assert "--allow-downgrades chrony=4.10-1`" in check.hint


@pytest.mark.parametrize("servers", [[], ["10.71.8.1"]])
def test_a_master_that_has_time_servers_is_not_the_clock_of_the_site(
    site: Site, evidence: dict[str, Any], servers: list[str]
) -> None:
    time = site.time.model_copy(update={"servers": [IPv4Address(server) for server in servers]})
    evidence["master1"]["time"] = {"reference": "", "local": True, "offset_s": 0.0, "synchronised": True}
    found = bad(site.model_copy(update={"time": time}), evidence)
    said = "+0.000 ms to its own clock, and the site's is that of 10.71.8.1"
    assert found == ([("master1", "clock follows the site", said)] if servers else [])


@pytest.mark.parametrize("before", [[], {"nodes": []}, {"nodes": {"master1": {"checks": [{"id": "time"}]}}}])
def test_a_verdict_before_of_another_form_is_passed_over(site: Site, evidence: dict[str, Any], before: Any) -> None:
    found = verdict(site, evidence)
    found.date(before)
    assert {check.since for check in found.checks} == {found.time}


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
    left = of(verdict(site, evidence), "master1", "strangers")
    assert (left.state, left.evidence) == ("warn", "storage1 has left and is still listed")
    assert "penstock node delete storage1" in left.hint
    assert verdict(site, evidence).ok
    listed[-1] |= {"state": "ready", "sessions": 3}
    told = "storage1 (active, 3 sessions) reports, and is no worker of the site"
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
