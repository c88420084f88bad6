"""From one disk to running fractional-GPU sessions in a network with no way out, as users do it."""

from __future__ import annotations

import json
import re
import shlex
import ssl
from typing import Any
from urllib.parse import urlsplit

import httpx
import pexpect
import pytest
from playwright.sync_api import expect

from tests.browser import new_page
from tests.lab.journey import PENSTOCK, PROJECT, Journey, slowness
from tests.lab.outside import CONNECT
from tests.lab.site import PLAY

NODES = ("master1", "worker1", "worker2", "storage1")
INDEX = "https://reservoir:8443/index/site/dev/"
WHEEL = """
import sys, zipfile
name = sys.argv[1]
path = f"/tmp/{name}-99.0-py3-none-any.whl"
info = f"{name}-99.0.dist-info"
files = {
    f"{name}.py": "",
    f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 99.0\\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    f"{info}/RECORD": "",
}
with zipfile.ZipFile(path, "w") as wheel:
    for file, text in files.items():
        # the same bytes each time: a version is never replaced
        wheel.writestr(zipfile.ZipInfo(file), text)
print(path)
"""


@pytest.mark.parametrize("node", NODES)
class TestTheNetworkIsClosed:
    """No node has any way out, and none knows a package source but the reservoir."""

    def test_there_is_no_default_route(self, journey: Journey, node: str) -> None:
        routes = journey.in_node(node, "ip", "route", "show").stdout
        assert "10.71.9.0/24" in routes
        assert "default" not in routes

    def test_an_outside_address_is_unreachable_at_once(self, journey: Journey, node: str) -> None:
        error, seconds = journey.in_node(node, "python3", "-c", CONNECT).stdout.split()
        assert error == "ENETUNREACH"
        assert float(seconds) < 1

    def test_outside_names_do_not_resolve(self, journey: Journey, node: str) -> None:
        assert journey.in_node(node, "getent", "hosts", "master1").returncode == 0
        assert journey.in_node(node, "getent", "hosts", "www.example.com").returncode == 2

    def test_the_reservoir_is_the_only_package_source(self, journey: Journey, node: str) -> None:
        targets = journey.in_node(node, "apt-get", "indextargets", "--format", "$(SITE)").stdout.split()
        own = "file:/var/lib/penstock/reservoir/current/apt"
        assert set(targets) == {own if node == "master1" else "https://reservoir:8443/apt"}
        pip = journey.in_node(node, "cat", "/etc/pip.conf").stdout
        assert re.findall(r"https?://[^/\s]+", pip) == ["https://reservoir:8443"]

    def test_packages_install_from_it_with_signatures_on(self, journey: Journey, node: str) -> None:
        update = journey.in_node(node, "apt-get", "update", "--error-on=any")
        assert update.returncode == 0, update.stdout + update.stderr
        insecure = journey.in_node(node, "apt-config", "dump", "--format", "%f %v%n").stdout
        assert "AllowInsecureRepositories 1" not in insecure


def test_the_site_verifies(journey: Journey) -> None:
    result = journey.in_node("master1", "penstock", "site", "verify", "-f", "/etc/penstock/site.yml")
    verdict = json.loads(result.stdout)
    failed = [(n, c) for n, node in verdict["nodes"].items() for c in node["checks"] if not c["ok"]]
    assert (result.returncode, verdict["ok"], failed) == (0, True, [])
    systems = {name: node["facts"]["os"].split(" (")[0] for name, node in verdict["nodes"].items()}
    assert systems == {
        "master1": "Debian GNU/Linux 12",
        "worker1": "Debian GNU/Linux 12",
        "worker2": "Debian GNU/Linux 13",
        "storage1": "Debian GNU/Linux 13",
    }


def exposure_on(journey: Journey, node: str) -> dict[str, float]:
    said = journey.in_node(node, "systemd-analyze", "security", "--no-pager").stdout
    return {name: float(level) for name, level in re.findall(r"^(\S+)\.service +([\d.]+)", said, re.MULTILINE)}


def test_services_that_people_and_nodes_reach_have_little_that_could_be_taken_over(journey: Journey) -> None:
    exposure = exposure_on(journey, "master1")
    hardened = ("docker-registry", "nginx", "penstock-agent-edge", "penstock-api", "penstock-edge", "penstock-index")
    others = ("penstock-controller", "postgresql@15-main")
    assert {name: exposure[name] for name in (*hardened, *others) if exposure[name] >= 4} == {}


def test_an_agent_is_kept_from_all_that_it_does_not_need(journey: Journey) -> None:
    assert exposure_on(journey, "worker1")["penstock-agent"] < 6.5


def test_an_nfs_server_is_kept_from_what_files_of_others_do_not_take(journey: Journey) -> None:
    assert exposure_on(journey, "storage1")["nfs-ganesha"] < 5.5


@pytest.mark.parametrize(("port", "reason"), [(443, ""), (9100, "No route to host"), (6001, "No route to host")])
def test_a_node_refuses_what_the_site_does_not_need(journey: Journey, port: int, reason: str) -> None:
    node = "master1" if port != 6001 else "worker2"
    tried = f"import socket; socket.create_connection(({node!r}, {port}), 5)"
    assert journey.in_node("worker1", "python3", "-c", tried).stderr.strip().endswith(reason)


def test_verify_notices_a_stopped_agent(journey: Journey) -> None:
    journey.in_node("worker2", "systemctl", "stop", "penstock-agent")
    try:
        result = journey.in_node("master1", "penstock", "site", "verify", "-f", "/etc/penstock/site.yml")
    finally:
        journey.in_node("worker2", "systemctl", "start", "penstock-agent")
    verdict = json.loads(result.stdout)
    assert result.returncode == 1
    assert not verdict["ok"]
    assert not verdict["nodes"]["worker2"]["ok"]
    assert verdict["nodes"]["worker1"]["ok"]


def test_the_report_names_nodes_versions_and_verdict(journey: Journey) -> None:
    result = journey.in_node(
        "master1", "penstock", "site", "report", "-f", "/etc/penstock/site.yml", "-o", "/tmp/report"
    )
    assert result.returncode == 0, result.stderr
    markdown = journey.in_node("master1", "cat", "/tmp/report/report.md").stdout
    page = journey.in_node("master1", "cat", "/tmp/report/report.html").stdout
    for text in (*NODES, "10.71.9.12", "0.1.0"):
        assert text in markdown
        assert text in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)


def test_three_sessions_for_two_places(journey: Journey) -> None:
    """Row L7: two run, the third waits and says why; delete one and the third runs."""
    journey.project("1")
    journey.clear()
    reason = journey.three_for_two()
    assert PROJECT in reason
    assert re.search(r"\b1 (of|GPU)", reason)
    journey.third_runs()
    shares = [gpu for name in ("second", "third") for gpu in journey.json("get", name)["gpus"]]
    assert [gpu["milli"] for gpu in shares] == [500, 500]


def test_two_halves_share_one_gpu_and_the_node_says_it_is_simulated(journey: Journey) -> None:
    nodes = journey.json("node", "list")
    used = [gpu["used_milli"] for node in nodes for gpu in node["gpus"] if gpu["used_milli"]]
    assert used == [1000]
    assert all(gpu["simulated"] for node in nodes for gpu in node["gpus"])
    assert sum(len(node["gpus"]) for node in nodes) == 16


def test_a_session_is_a_container_that_has_its_share_and_no_way_out(journey: Journey) -> None:
    session = journey.json("get", "third")
    containers = journey.in_node(session["node"], "docker", "ps", "--format", "{{.Names}} {{.Image}}").stdout
    assert "reservoir:5000/penstock/python:3.11" in containers
    child = pexpect.spawn(
        *(str(PENSTOCK), ["bash", "third"]),
        env=journey.environment,
        encoding="utf-8",
        timeout=60 * slowness(),
        dimensions=(24, 80),
    )
    child.sendline("echo share=$PENSTOCK_GPU_SHARE; python3 --version; stty size; exit 7")
    child.expect("share=500")
    child.expect(r"Python 3\.11")
    child.expect("24 80")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 7
    script = f"python3 -c {shlex.quote(CONNECT)}\nexit\n"
    answer = journey.try_penstock("bash", "third", stdin=script)
    assert "ECONNREFUSED" in answer.stdout, answer.stdout + answer.stderr


WAYS = """
import socket, sys
for host, port in (way.split(":") for way in sys.argv[1:]):
    try:
        socket.create_connection((host, int(port)), 5).close()
        print(host, port, "answers", flush=True)
    except OSError as error:
        print(host, port, error.strerror, flush=True)
"""
REACHED = ("penstock:443", "penstock:56789", "penstock:9443", "reservoir:8443")
REFUSED = (
    *("master1:22", "worker1:22", "worker2:22", "storage1:22"),
    *("worker1:6001", "worker2:6001", "storage1:2049", "worker1:2049", "master1:5432", "reservoir:5000"),
    *("172.17.0.1:22", "172.17.0.1:6001"),
)


def test_a_session_reaches_the_services_of_the_site_by_name_and_nothing_else(journey: Journey) -> None:
    journey.clear()
    program = ("--command", "python3", "--args=-c", "--args", WAYS)
    tried = (word for way in (*REACHED, *REFUSED) for word in ("--args", way))
    journey.penstock("submit", "ways", "-i", "python:3.11", "-g", "0.5", *program, *tried)
    journey.until(lambda: "ways" not in journey.states(), "the session ends")
    lines = journey.penstock("logs", "ways").splitlines()
    for ways, said in ((REACHED, "answers"), (REFUSED, "Connection refused")):
        assert [line for line in lines if line.endswith(said)] == [f"{way.replace(':', ' ')} {said}" for way in ways]
    for worker in ("worker1", "worker2"):
        table = journey.in_node(worker, "nft", "list", "table", "inet", "penstock").stdout
        assert 'iifname "docker0" jump sessions' in table


def test_sessions_run_on_workers_of_both_releases(journey: Journey) -> None:
    journey.clear()
    journey.project("16")
    try:
        for name in ("one", "other"):
            journey.submit(name, "8")
        journey.until(lambda: journey.states() == {"one": "RUNNING", "other": "RUNNING"}, "both sessions run")
        assert {journey.json("get", name)["node"] for name in ("one", "other")} == {"worker1", "worker2"}
    finally:
        journey.clear()
        journey.project("1")


MEETING = """
import os, socket, time
rank, (first, *_) = int(os.environ["RANK"]), os.environ["PENSTOCK_HOSTS"].split(",")
at = first, int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", at[1])) as server:
        connection, (address, _) = server.accept()
        print(f"met {address}", flush=True)
        connection.sendall(bytes(1 << 20))
        connection.close()
else:
    end = time.monotonic() + 60
    while True:
        try:
            connection = socket.create_connection(at, 5)
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.2)
    got = 0
    while piece := connection.recv(1 << 16):
        got += len(piece)
    print(f"got {got}", flush=True)
"""


def test_a_lost_database_comes_back_and_sessions_that_run_are_adopted(journey: Journey) -> None:
    """One session is in the backup and goes on in its container; the other one is not, and is told and left alone.

    The backup is ordered from elsewhere, by the API: a unit of the controller takes it.
    """
    journey.clear()
    journey.submit("known")
    journey.until(lambda: journey.states() == {"known": "RUNNING"}, "the session runs")

    def container_of(node: str) -> str:
        wanted = ("--filter", f"name={journey.json('get', 'known')['id']}", "--format", "{{.ID}}")
        return journey.in_node(node, "docker", "ps", *wanted).stdout

    before = container_of(journey.json("get", "known")["node"])
    assert before
    order = journey.json("backup", "now")
    assert order["state"] == "done"
    unit = f"penstock-backup-order-{order['id']}"
    assert "Penstock backup now" in journey.in_node("master1", "journalctl", "--unit", unit, "--output", "cat").stdout
    listed = {each["name"]: each["good"] for each in journey.json("backup", "list")["backups"]}
    assert listed[order["backup"]]
    journey.submit("newer")
    journey.until(lambda: journey.states() == {"known": "RUNNING", "newer": "RUNNING"}, "both sessions run")
    places = {name: journey.json("get", name)["node"] for name in ("known", "newer")}
    wreck = journey.in_node("master1", "runuser", "-u", "postgres", "--", "dropdb", "--force", "penstock")
    assert wreck.returncode == 0, wreck.stderr
    restored = journey.in_node("master1", "penstock", "backup", "restore")
    assert restored.returncode == 0, restored.stderr
    assert "Recovery point:" in restored.stdout
    assert "Recovery time:" in restored.stdout

    def unknown() -> int:
        nodes = {node["name"]: node for node in journey.json("node", "list")}
        return int(nodes[places["newer"]]["unknown_containers"])

    journey.until(lambda: unknown() == 1, "the node tells of the container that nobody knows")
    assert journey.states() == {"known": "RUNNING"}
    assert container_of(places["known"]) == before
    assert journey.in_node("master1", "penstock", "backup", "list").returncode == 0
    journey.penstock("node", "end-unknown", places["newer"])
    journey.until(lambda: unknown() == 0, "the unknown container is ended")
    journey.clear()


def test_containers_of_a_session_on_two_nodes_reach_each_other(journey: Journey) -> None:
    """Eight GPUs a container: one on each worker, of another release; they meet by name across the nodes."""
    journey.clear()
    journey.project("16")
    try:
        words = ("--replicas", "2", "--command", "python3", "--args=-c", "--args", MEETING)
        journey.penstock("submit", "pair", "-i", "python:3.11", "-g", "8", *words)
        journey.until(lambda: "pair" not in journey.states(), "the session ends")
        session = journey.json("get", "pair")
        assert {each["node"] for each in session["containers"]} == {"worker1", "worker2"}
        assert session["state"] == "TERMINATED", session["reason"]
        assert re.search(r"met 100\.96\.\d+\.\d+", journey.penstock("logs", "pair"))
        assert f"got {1 << 20}" in journey.penstock("logs", "pair", "--rank", "1")
        for node in ("worker1", "worker2"):
            assert "psx-" not in journey.in_node(node, "ip", "link", "show").stdout
            assert "psg-" not in journey.in_node(node, "ip", "link", "show").stdout
    finally:
        journey.clear()
        journey.project("1")


def test_logs_follow_a_session_and_outlive_it(journey: Journey) -> None:
    journey.clear()
    journey.penstock("submit", "speaker", "-i", "python", "-g", "0.5", "--command", "echo", "--args", "one line")
    journey.until(lambda: "speaker" not in journey.states(), "the session ends")
    assert journey.json("get", "speaker")["state"] == "TERMINATED"
    assert journey.penstock("logs", "speaker").strip() == "one line"


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ("0", ("--cpu: ", "without GPUs", "ask for one CPU")),
        ("-1", ("-g: ", "not above 0", "at least 0.05")),
        ("0.33", ("-g: ", "finer than the granularity", "0.3 or 0.35")),
        ("9", ("-g: ", "8 GPU")),
        ("17", ("-g: ", "at most")),
    ],
)
def test_a_share_that_cannot_be_is_refused_with_the_hint(journey: Journey, gpus: str, words: tuple[str, ...]) -> None:
    before = journey.json("list", "--all")
    result = journey.try_penstock("submit", "wrong", "-i", "python", "-g", gpus, "--command", "true")
    assert result.returncode != 0
    for word in words:
        assert word in result.stderr
    assert journey.json("list", "--all") == before


def test_documentation_pages_load_nothing_from_outside(journey: Journey) -> None:
    lab = journey.lab
    authority = ssl.create_default_context(cafile=lab["ca"])
    page = httpx.get(f"{lab['console']}/docs", verify=authority)
    loaded = set(re.findall(r"""(?:src|href)=["']([^"']+)""", page.text)) - {"data:,"}
    assert loaded
    for address in loaded:
        assert address.startswith("/")
        assert not address.startswith("//")
        assert httpx.get(f"{lab['console']}{address}", verify=authority).status_code == 200
    assert "script-src 'self';" in page.headers["content-security-policy"]


def test_documentation_works_in_a_browser_that_finds_nothing_outside(journey: Journey) -> None:
    console = journey.lab["console"]
    with new_page(str(urlsplit(console).hostname)) as page:
        page.goto(f"{console}/docs")
        expect(page.get_by_role("heading", name="Penstock control API")).to_be_visible()
        expect(page.get_by_text("/api/v1/sessions", exact=True).first).to_be_visible()
        assert page.locator(".opblock").count() > 10


def test_an_export_that_nobody_mounts_answers_its_own_node_alone(journey: Journey) -> None:
    """The client comes from the reservoir, on a node that had no use for it before."""
    export = "nfs://10.71.9.13/srv/archive?version=4"
    own = journey.in_node("storage1", "nfs-ls", export)
    assert own.returncode == 0, own.stdout + own.stderr
    install = journey.in_node("worker1", "apt-get", "install", "-y", "--no-install-recommends", "libnfs-utils")
    assert install.returncode == 0, install.stdout + install.stderr
    assert journey.in_node("worker1", "nfs-ls", export).returncode != 0


def test_sessions_survive_a_reboot_of_the_control_plane(journey: Journey) -> None:
    journey.clear()
    journey.submit("lasting")
    journey.until(lambda: journey.states() == {"lasting": "RUNNING"}, "the session runs")
    node = journey.json("get", "lasting")["node"]
    begun = journey.json("get", "lasting")["started_at"]
    journey.in_node("master1", "systemctl", "restart", "postgresql", "penstock-api")
    journey.in_node(node, "systemctl", "restart", "penstock-agent")
    journey.until(lambda: journey.try_penstock("list").returncode == 0, "the API answers again")
    journey.until(lambda: all(n["state"] == "ready" for n in journey.json("node", "list")), "all nodes are ready")
    session = journey.json("get", "lasting")
    assert (session["state"], session["started_at"]) == ("RUNNING", begun)
    journey.clear()


def test_what_was_done_is_in_the_audit_log_and_holds(journey: Journey) -> None:
    journey.clear()
    journey.submit("audited")
    journey.clear()

    def told() -> set[str]:
        lines = journey.try_penstock("audit", "list", "--object", "sessions/audited", "-o", "json").stdout.splitlines()
        return {json.loads(line)["action"] for line in lines}

    journey.until(lambda: told() >= {"session_submit", "session_end"}, "both lines are there")
    verdict = journey.json("audit", "verify")
    assert verdict["ok"], verdict
    assert verdict["lines"] == verdict["last"]
    assert verdict["unheard"] == []
    kept = json.loads(journey.in_node("worker1", "cat", "/var/lib/penstock/agent/audit-heads.json").stdout)
    assert 0 < kept[-1]["head"]["seq"] <= verdict["last"]
    listed = journey.in_node("master1", "find", "/var/log/penstock/audit", "-name", "*.log", "-printf", "%m %u\\n")
    assert set(listed.stdout.split("\n")) - {""} == {"600 penstock"}


def test_what_services_of_all_nodes_have_logged_is_found_on_the_master(journey: Journey) -> None:
    names = {node["name"] for node in journey.lab["nodes"]}
    journey.project("2")

    def logged(*words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in journey.penstock("logs", "--site", *words, "-o", "json").splitlines()]

    journey.until(lambda: all(logged("--node", name) for name in names), "the journals of all nodes are there")
    journey.submit("logged")
    journey.until(lambda: journey.states() == {"logged": "RUNNING"}, "the session runs")
    session = journey.json("get", "logged")
    of_session = ("--session", session["id"], "--unit", "penstock-agent")
    journey.until(lambda: bool(logged(*of_session)), "what its agent has logged is there")
    assert {line["node"] for line in logged(*of_session)} == {session["node"]}
    entries = journey.penstock("audit", "list", "--object", "sessions/logged", "-o", "json").splitlines()
    submitted = next(entry for entry in map(json.loads, entries) if entry["action"] == "session_submit")
    launched = ("--request", submitted["request"], "--unit", "penstock-agent")
    assert {line["node"] for line in logged(*launched)} == {session["node"]}, "the leader launched it later"
    journey.clear()


def test_services_of_the_distribution_come_back_whatever_ends_them(journey: Journey) -> None:
    listed = journey.in_node("master1", "systemctl", "list-units", "--plain", "--no-legend", "postgresql@*.service")
    units = [listed.stdout.split()[0], "nginx.service", "docker-registry.service", "chrony.service"]

    def pids() -> list[str]:
        shown = journey.in_node("master1", "systemctl", "show", "--property=MainPID", "--value", *units)
        return shown.stdout.split()

    before = pids()
    assert "0" not in before, before
    journey.in_node("master1", "kill", "-9", *before)
    journey.until(lambda: not {"0", *before} & set(pids()), "all of them run again")
    journey.until(lambda: journey.try_penstock("list").returncode == 0, "the API answers again")


def test_a_deploy_restarts_what_a_killed_one_left_with_old_settings(journey: Journey) -> None:
    """What was written and not taken up: the play at the end of a deploy mends it."""
    change = "echo PENSTOCK_API_LOGIN_LIFETIME_S=28000 >> /etc/penstock/api.env; sleep 1"
    journey.in_node("master1", "sh", "-euc", change)
    restart = ("sh", "-euc", PLAY, "sh", "playbooks/restarts.yml")
    done = journey.in_node(journey.reservoir, *restart)
    assert done.returncode == 0, done.stdout + done.stderr
    environ = "tr '\\0' '\\n' < /proc/$(systemctl show --property=MainPID --value penstock-api)/environ"
    journey.until(
        lambda: "LOGIN_LIFETIME_S=28000" in journey.in_node("master1", "sh", "-euc", environ).stdout,
        "the API runs with the new settings",
    )
    journey.in_node("master1", "sed", "-i", "/=28000$/d", "/etc/penstock/api.env")
    journey.in_node(journey.reservoir, *restart)
    journey.until(lambda: journey.try_penstock("list").returncode == 0, "the API answers again")


def test_secrets_stay_private(journey: Journey) -> None:
    modes = journey.in_node(
        "master1",
        "stat",
        "--format",
        "%a %n",
        "/var/lib/penstock/site",
        "/var/lib/penstock/site/admin-password",
        "/etc/penstock/pki/node.key",
    ).stdout.split()
    assert modes[0] == "700"
    assert modes[2] == "600"
    assert modes[4] in ("600", "640")
    password = journey.first_password
    assert len(password) >= 8
    found = journey.in_node(
        "master1", "grep", "-rlF", "--", password, "/var/log", "/var/lib/penstock/site", "/etc/penstock"
    )
    assert found.stdout.split() == ["/var/lib/penstock/site/admin-password"]


def test_users_share_packages_of_their_own_and_cannot_shadow_what_is_published(journey: Journey) -> None:
    """Upload on one node, install on another: the site's index has both kinds, and published names stay shut."""
    uploads = ("penstock", "reservoir", "uploads")
    journey.in_node("master1", *uploads, "remove-account", "carol")
    made = journey.in_node("master1", *uploads, "add-account", "carol", "--json")
    assert made.returncode == 0, made.stderr
    assert journey.in_node("worker1", "apt-get", "install", "--yes", "curl").returncode == 0
    login = f"carol:{json.loads(made.stdout)['password']}"

    def upload(name: str) -> str:
        package = journey.in_node("worker1", "python3", "-c", WHEEL, name).stdout.strip()
        form = (":action=file_upload", f"name={name}", "version=99.0", f"content=@{package}")
        words = [word for field in form for word in ("--form", field)]
        ca = ("--cacert", "/etc/penstock/pki/ca.crt")
        return journey.in_node(
            "worker1", "curl", "--silent", *ca, "--user", login, *words, "--write-out", " %{http_code}", INDEX
        ).stdout

    assert upload("carols").endswith("200")
    refused = upload("packaging")
    assert refused.endswith("403")
    assert "penstock reservoir uploads allow packaging" in refused
    install = (
        f"python3 -m venv /tmp/own && /tmp/own/bin/pip install --quiet --index-url {INDEX}+simple/ carols packaging"
    )
    done = journey.in_node("worker2", "sh", "-c", install)
    assert done.returncode == 0, done.stderr
    said = journey.in_node(
        "worker2", "/tmp/own/bin/python", "-c", "import carols, packaging; print(packaging.__version__)"
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip() != "99.0"
    listed = json.loads(journey.in_node("master1", *uploads, "list", "--json").stdout)
    assert "carols" in listed["packages"]
    assert listed["hidden"] == []
