"""What `penstock site verify` says of a site that is broken in many ways, each of which it once called good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import yaml

from common.errors import ConflictError
from tests.lab.site import PLAY, PYTHON, SITE_FILE, LabSite, docker

SMALLER = "/root/site-without-worker2.yml"
PKI = "/etc/penstock/pki"
SHARED = "/srv/shared"
LISTEN = "import socket, time; server = socket.create_server(('', 443)); time.sleep(600)"
SHORT = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
own = x509.load_pem_x509_certificate(sys.stdin.buffer.read())
authority = Path("/var/lib/penstock/site/pki/ca.key").read_bytes()
builder = x509.CertificateBuilder(own.issuer, own.subject, own.public_key(), x509.random_serial_number())
builder = builder.not_valid_before(own.not_valid_before_utc).not_valid_after(datetime.now(UTC) + timedelta(days=1))
for extension in own.extensions:
    builder = builder.add_extension(extension.value, extension.critical)
made = builder.sign(serialization.load_pem_private_key(authority, None), hashes.SHA256())
print(made.public_bytes(serialization.Encoding.PEM).decode(), end="")
"""
"""Prints a certificate as it comes in, made again by the site's authority, to end tomorrow."""

Found = dict[tuple[str, str], dict[str, Any]]
"""The checks that are not good, by subject and id."""


def do(site: LabSite, node: str, *command: str, stdin: str = "") -> str:
    done = site.in_node(node, *command, stdin=stdin)
    assert done.returncode == 0, f"{node}: {command}: {done.stdout}{done.stderr}"
    return done.stdout


def verify(site: LabSite, file: str = SITE_FILE, *options: str) -> tuple[int, Found]:
    done = site.in_node(site.reservoir, "penstock", "site", "verify", "-f", file, *options)
    verdict = json.loads(done.stdout)
    checks = [check for node in verdict["nodes"].values() for check in node["checks"]]
    return done.returncode, {(each["subject"], each["id"]): each for each in checks if each["state"] != "ok"}


@contextmanager
def firewall(site: LabSite, node: str, source: str, *ports: str) -> Iterator[None]:
    """What closes ports of a node to another one without a word."""
    rule = ("INPUT", "--protocol", "tcp", "--source", source, "--match", "multiport", "--dports", ",".join(ports))
    do(site, node, "iptables", "--wait", "--insert", *rule, "--jump", "DROP")
    try:
        yield
    finally:
        do(site, node, "iptables", "--wait", "--delete", *rule, "--jump", "DROP")


@contextmanager
def changed(site: LabSite, node: str, path: str, text: str) -> Iterator[None]:
    """Another text in a file of a node, which has its own and its times again afterwards."""
    do(site, node, "cp", "--preserve=all", path, f"{path}.kept")
    do(site, node, "tee", path, stdin=text)
    try:
        yield
    finally:
        do(site, node, "mv", f"{path}.kept", path)


@contextmanager
def unmounted(site: LabSite, *nodes: str) -> Iterator[None]:
    """Another file system over the shared storage of nodes, as where its mount is lost."""
    for node in nodes:
        do(site, node, "mount", "-t", "tmpfs", "none", SHARED)
    try:
        yield
    finally:
        for node in nodes:
            do(site, node, "umount", SHARED)


@contextmanager
def without_gpus(site: LabSite, node: str) -> Iterator[None]:
    """An agent that finds no GPU."""
    path, unit = "/etc/penstock/agent.env", "penstock-agent.service"
    lines = do(site, node, "cat", path).splitlines(keepends=True)
    try:
        with changed(site, node, path, "".join(line for line in lines if "SIMULATED_GPUS" not in line)):
            do(site, node, "systemctl", "restart", unit)
            site.until(lambda: not site.json("node", "get", node)["gpus"], f"{node} has no GPUs")
            yield
    finally:
        do(site, node, "systemctl", "restart", unit)
        site.until(lambda: bool(site.json("node", "get", node)["gpus"]), f"{node} has its GPUs again")


@contextmanager
def foreign_console(site: LabSite) -> Iterator[None]:
    """A program that had the console's port before the edge began."""
    master, unit = "master1", "foreign-console.service"
    do(site, master, "systemctl", "stop", "penstock-edge.service")
    try:
        do(site, master, "systemd-run", f"--unit={unit}", "/usr/bin/python3", "-c", LISTEN)
        do(site, master, "systemctl", "start", "penstock-edge.service")
        yield
    finally:
        do(site, master, "systemctl", "stop", unit)
        do(site, master, "systemctl", "restart", "penstock-edge.service")
        site.until(lambda: bool(site.json("node", "list")), "the edge answers again")


@contextmanager
def foreign_source(site: LabSite, node: str) -> Iterator[None]:
    """A package source that nobody has fetched from yet."""
    path = "/etc/apt/sources.list.d/mirror.list"
    do(site, node, "tee", path, stdin="deb [trusted=yes] http://mirror.example/debian trixie main\n")
    try:
        yield
    finally:
        do(site, node, "rm", path)


def smaller(site: LabSite) -> None:
    """Write a site file without worker2."""
    document = yaml.safe_load(do(site, site.reservoir, "cat", SITE_FILE))
    document["nodes"] = [node for node in document["nodes"] if node["name"] != "worker2"]
    do(site, site.reservoir, "tee", SMALLER, stdin=yaml.safe_dump(document))


@pytest.fixture(scope="module")
def broken(journey: LabSite) -> tuple[int, Found, str]:
    """A verdict on a site with many faults at once, and what its deploy says of the edge."""
    site, master = journey, "master1"
    site.clear()
    addresses = {node["name"]: node["address"] for node in yaml.safe_load(site.site.read_text())["nodes"]}
    smaller(site)
    certificate = do(site, "storage1", "cat", f"{PKI}/node.crt")
    short = do(site, master, PYTHON, "-c", SHORT, stdin=certificate)
    with site.phase("break the site and verify"), ExitStack() as faults:
        faults.enter_context(without_gpus(site, "worker1"))
        faults.enter_context(unmounted(site, "worker1"))
        faults.enter_context(firewall(site, "worker1", addresses[master], "6001"))
        faults.enter_context(firewall(site, master, addresses["storage1"], "8443", "5000"))
        faults.enter_context(changed(site, "storage1", f"{PKI}/node.crt", short))
        faults.enter_context(foreign_source(site, "storage1"))
        faults.enter_context(foreign_console(site))
        code, found = verify(site, SMALLER)
        edge = site.in_node(master, "sh", "-euc", PLAY, "sh", "playbooks/edge.yml")
        assert edge.returncode != 0, edge.stdout
    return code, found, edge.stdout


@pytest.mark.parametrize(
    ("subject", "check", "said"),
    [
        ("worker1", "gpus", "0 GPUs; the site file has 8"),
        ("worker1: shared", "storage", "it is not mounted at /srv/shared"),
        ("master1: agent of worker1", "call", "no answer within 10 s"),
        ("storage1: release", "fetch", "no answer within 10 s"),
        ("storage1: index", "fetch", "no answer within 10 s"),
        ("worker1: console", "call", "/api/v1/health: "),
        ("master1: apps", "call", ""),
        ("storage1", "certificate.end", "ends in 1 day,"),
        ("storage1", "source.packages", "apt fetches from http://mirror.example/debian/"),
        ("master1", "strangers", "worker2 (active, 0 sessions) reports, and is no worker of the site"),
    ],
)
def test_each_fault_is_named(broken: tuple[int, Found, str], subject: str, check: str, said: str) -> None:
    code, found, _ = broken
    assert code == 1
    assert (subject, check) in found, json.dumps(list(found.values()), indent=1)
    assert said in found[subject, check]["evidence"]
    assert found[subject, check]["state"] == "fail"
    assert found[subject, check]["hint"]


def test_a_deploy_says_who_has_the_port_of_the_console(broken: tuple[int, Found, str]) -> None:
    *_, said = broken
    assert "The edge does not answer: port 443" in said
    assert "python3 (" in said


def test_nothing_of_it_is_left_and_real_sessions_run(broken: tuple[int, Found, str], journey: LabSite) -> None:
    password = journey.own_password.read_text()
    words = ("login", "https://master1:56789", "--user", "admin", "--ca", f"{PKI}/ca.crt", "--password-stdin")
    do(journey, "master1", "penstock", *words, stdin=password)
    code, found = verify(journey, SITE_FILE, "--smoke")
    warned = {key: check["evidence"] for key, check in found.items()}
    assert (code, {check["state"] for check in found.values()}) == (0, {"warn"}), warned
    # no name server of the lab knows the names of apps
    assert warned.keys() == {("master1", "backup.age"), ("master1", "apps.name")}
    assert warned["master1", "backup.age"] == "there is no good backup"
    assert warned["master1", "apps.name"].startswith("*.apps.gpu.test is not found from master1: ")
    assert not [project for project in journey.json("project", "list") if project["name"].startswith("smoke")]
    assert not [group for group in journey.json("group", "list") if group["name"].startswith("smoke")]


def test_a_lost_mount_and_a_restarted_node(journey: LabSite) -> None:
    """What needs the storage waits for it; then a node restarts: its training runs again, the other session says so."""
    workers = ("worker1", "worker2")
    journey.project("1")
    try:
        with unmounted(journey, *workers):
            journey.until(lambda: all(misses(journey, node) for node in workers), "the workers miss their storage")
            sleeps = ("-g", "0.5", "--command", "sleep", "--args", "infinity")
            journey.penstock("submit", "keeps", "-i", "python:3.11", "--pvc", "data:/data", *sleeps)
            journey.until(lambda: "has the storage shared" in journey.json("get", "keeps")["reason"], "it says why")
        journey.until_states({"keeps": "RUNNING"}, "it runs when the storage is back")
        node = journey.json("get", "keeps")["node"]
        other = next(each for each in workers if each != node)
        journey.penstock("node", "maintenance", other)
        journey.penstock("submit", "desk", "-i", "python:3.11", "--interactive", *sleeps)
        journey.until_states({"keeps": "RUNNING", "desk": "RUNNING"}, f"both run on {node}")
        hosts = do(journey, node, "cat", "/etc/hosts")
        docker("restart", journey.containers[node])
        # Docker has begun it anew
        do(journey, node, "tee", "/etc/hosts", stdin=hosts)
        journey.until(lambda: journey.json("get", "desk")["state"] == "FAILED", "what a person used has ended")
        desk = journey.json("get", "desk")
        assert (desk["reason"], desk["cause"]) == ("its node restarted while it ran", "node-restarted")

        def runs_again() -> bool:
            keeps = journey.json("get", "keeps")
            return (keeps["state"], keeps["node"], keeps["attempt"]) == ("RUNNING", node, 1)

        journey.until(runs_again, "the training runs again")
    finally:
        journey.clear()
        for worker in workers:
            journey.penstock("node", "activate", worker)


def misses(site: LabSite, node: str) -> bool:
    """Return whether a node says that it lacks the shared storage."""
    return "shared" in site.json("node", "get", node)["missing_storages"]


def test_a_deploy_refuses_no_node_on_which_a_session_runs(journey: LabSite) -> None:
    journey.project("1")
    smaller(journey)
    deploy = ("penstock", "site", "deploy", "-f", SMALLER, "--bundle", "/media/penstock")
    try:
        journey.penstock("node", "maintenance", "worker1")
        journey.submit("stays")
        journey.until_states({"stays": "RUNNING"}, "the session runs")
        assert journey.json("get", "stays")["node"] == "worker2"
        for option, mode in (("--check", "active"), ("--output=table", "maintenance")):
            done = journey.in_node(journey.reservoir, *deploy, option)
            assert done.returncode == ConflictError.exit_code, done.stdout + done.stderr
            assert "1 sessions run on it: stays of admin" in done.stderr
            assert "penstock node drain worker2" in done.stderr
            assert journey.json("node", "get", "worker2")["mode"] == mode
        do(journey, journey.reservoir, "test", "-f", "/var/lib/penstock/site/pki/nodes/worker2/node.key")
        assert journey.states() == {"stays": "RUNNING"}
    finally:
        journey.clear()
        for worker in ("worker1", "worker2"):
            journey.penstock("node", "activate", worker)
