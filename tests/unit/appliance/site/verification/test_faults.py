"""Faults of nodes: each is one check that says what is wrong."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from appliance.site.model import Site
from tests.unit.appliance.site.verification.evidence import APT, PYPI, answer, bad, verdict, ways


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


@pytest.mark.parametrize("servers", [[], ["10.71.8.1"]])
def test_a_master_that_has_time_servers_is_not_the_clock_of_the_site(
    site: Site, evidence: dict[str, Any], servers: list[str]
) -> None:
    time = site.time.model_copy(update={"servers": [IPv4Address(server) for server in servers]})
    evidence["master1"]["time"] = {"reference": "", "local": True, "offset_s": 0.0, "synchronised": True}
    found = bad(site.model_copy(update={"time": time}), evidence)
    said = "+0.000 ms to its own clock, and the site's is that of 10.71.8.1"
    assert found == ([("master1", "clock follows the site", said)] if servers else [])


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
