"""Ports between nodes and addresses that two machines have, on networks of the kernel with a firewall of its own."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

from appliance.site import inventory, playbook, preflight
from appliance.site.site_file import load
from common.yaml_document import parse
from reservoir.contents.bundle import Bundle

ROOT = Path(__file__).parents[2]
SCRIPT = """\
import json, sys
sys.path.insert(0, {root!r})
from tests.role_modules import role_module
module = role_module("preflight/library/{module}.py")
print(json.dumps({call}))
"""
CALLERS = {"callers": ["10.99.0.1"]}
PORTS = [
    {"protocol": protocol, "port": port} | CALLERS for protocol, port in (("tcp", 8443), ("tcp", 6001), ("udp", 4789))
]
TWIN = "10.99.0.9"
RUN, OTHER = "5b3c", "90d1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """A network namespace with an interface and an address, and a folder that is its /run."""

    namespace: str
    address: str
    folder: Path

    def inside(self, *words: str) -> list[str]:
        """The command that runs one there."""
        with_run = ["sh", "-c", 'mount --bind "$0" /run && exec "$@"', str(self.folder)]
        return ["ip", "netns", "exec", self.namespace, *with_run, *words]

    def says(self, module: str, call: str) -> Any:
        """What a function of one of the role's modules returns there."""
        script = SCRIPT.format(root=str(ROOT), module=module, call=call)
        words = self.inside(sys.executable, "-c", script)
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    def firewall(self, rule: str) -> None:
        """Have a rule for what comes in."""
        rules = f"table inet firewall {{ chain input {{ type filter hook input priority 0; {rule} }}; }}\n"
        words = ["ip", "netns", "exec", self.namespace, "nft", "--file", "-"]
        subprocess.run(words, input=rules, text=True, check=True)

    def reaches(self, other: Machine, run: str = RUN) -> dict[str, str]:
        """Why each of the ports of another machine does not answer; empty where it does."""
        ways = [port | {"address": other.address, "key": f"{port['protocol']}/{port['port']}"} for port in PORTS]
        found: dict[str, str] = self.says("node_ways", f"module.tried({run!r}, {ways!r})")
        return found

    def listens(self, seconds: int = 60, run: str = RUN) -> list[str]:
        """Which ports answer there for a while."""
        said = self.says("node_ways", f"module.listen({run!r}, {self.address!r}, {PORTS!r}, {seconds})")
        found: list[str] = said["penstock_listens"]
        return found

    def listens_still(self, ports: list[str]) -> list[str]:
        """On which of these somebody listens."""
        found: list[str] = self.says("node_ways", f"module.still({self.address!r}, {ports!r})")
        return found

    def waits_for_the_end(self) -> None:
        """Wait until who listened has ended by itself: its folder goes last."""
        deadline = time.monotonic() + 60
        while (self.folder / f"penstock-preflight-{RUN}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def ends(self, run: str = RUN) -> None:
        """Listen no more."""
        assert self.says("node_ways", f"module.end({run!r})")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    word = uuid.uuid4().hex[:6]
    both = [f"pt-{name}-{word}" for name in ("one", "two")]
    for name in both:
        ip("netns", "add", name)
    try:
        ip("-n", both[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", both[1])
        for number, name in enumerate(both, 1):
            for address in (f"10.99.0.{number}", TWIN):
                ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                ip("-n", name, "link", "set", interface, "up")
        one, two = (Machine(name, f"10.99.0.{number}", tmp_path / name) for number, name in enumerate(both, 1))
        for each in (one, two):
            each.folder.mkdir()
        yield one, two
        two.ends()
    finally:
        for name in both:
            ip("netns", "delete", name)


def test_ports_answer_while_somebody_listens_for_services_that_are_not_there_yet(
    machines: tuple[Machine, Machine],
) -> None:
    one, two = machines
    refused = dict.fromkeys(("tcp/8443", "tcp/6001", "udp/4789"), "Connection refused")
    assert one.reaches(two) == refused
    assert two.listens() == list(refused)
    assert one.reaches(two) == dict.fromkeys(refused, "")
    two.ends()
    assert one.reaches(two) == refused


def test_a_port_is_free_for_its_service_as_soon_as_nobody_listens_any_more(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    two.listens()
    one.reaches(two)
    two.ends()
    bound = f"[__import__('socket').create_server(({two.address!r}, port)).close() for port in (8443, 6001)]"
    assert two.says("node_ways", bound) == [None, None]


def test_a_firewall_is_found_whether_it_drops_or_rejects(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    two.listens()
    two.firewall("tcp dport 6001 drop; tcp dport 8443 reject with tcp reset; udp dport 4789 drop;")
    assert one.reaches(two) == {
        "tcp/8443": "Connection refused",
        "tcp/6001": "no answer within 3 s",
        "udp/4789": "no answer within 3 s",
    }


def test_who_listens_ends_by_itself_and_gives_way_to_the_next(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    two.listens()
    assert two.listens(seconds=0) == ["tcp/8443", "tcp/6001", "udp/4789"], "a preflight that was killed is no hindrance"
    two.waits_for_the_end()
    assert set(one.reaches(two).values()) == {"Connection refused"}


def test_two_preflights_at_once_leave_each_other_alone(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    two.listens()
    of_other = two.listens(run=OTHER)
    assert of_other == ["tcp/8443", "tcp/6001"], "the first one holds them; its UDP port answers nobody else"
    holder = two.says("node_present", "module.listening({8443}, module.Path('/proc'))")
    assert [each["process"] for each in holder] == [preflight.LISTENER], "it is in nobody's way"
    two.ends(OTHER)
    assert set(one.reaches(two).values()) == {""}, "the first one is not disturbed"
    assert two.listens_still(of_other) == of_other
    two.ends()
    assert two.listens_still(of_other) == [], "what one preflight alone listened on says nothing to the other"


def test_nobody_but_root_ends_a_preflight(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    two.listens()
    assert two.says("node_ways", f"[__import__('os').setuid(65534), module.end({RUN!r})][1]") is False
    assert set(one.reaches(two).values()) == {""}


def test_by_udp_only_the_own_run_is_answered_and_no_answer_is_a_request(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    two.listens()
    script = f"""
import socket
def said(word, patience_s=0.5):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.settimeout(patience_s)
        way.sendto(word, ({two.address!r}, 4789))
        try:
            return way.recv(128)
        except TimeoutError:
            return None
answer = said(module.request({RUN!r}, b"12345678"), 30)
found = [answer is not None, said(b"boom"), said(module.request({OTHER!r}, b"12345678")), said(answer or b"none")]
"""
    found = f"(lambda known: [exec({script!r}, known), known['found']][1])({{'module': module}})"
    assert one.says("node_ways", found) == [True, None, None, None]


def test_a_port_that_sessions_may_want_is_left_to_them(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    two = machines[1]
    (tmp_path / "agent.env").touch()
    ports = [PORTS[0], PORTS[2] | {"unless": str(tmp_path / "agent.env")}]
    call = f"module.listen({RUN!r}, {two.address!r}, {ports!r}, 60)"
    assert two.says("node_ways", call) == {"penstock_listens": ["tcp/8443"]}
    opened = f"module.opening({two.address!r}, 'udp', 4789)[0] is not None"
    assert two.says("node_ways", opened), "a session on several nodes starts meanwhile"
    (tmp_path / "agent.env").unlink()
    assert two.says("node_ways", call) == {"penstock_listens": ["tcp/8443", "udp/4789"]}


def test_a_name_that_is_taken_is_told_and_stops_nothing(machines: tuple[Machine, Machine]) -> None:
    two = machines[1]
    (two.folder / f"penstock-preflight-{RUN}").touch()
    said = two.says("node_ways", f"module.listen({RUN!r}, {two.address!r}, {PORTS!r}, 60)")
    assert said == {"penstock_listens": [], "penstock_unheard": f"/run/penstock-preflight-{RUN}: File exists"}
    two.ends()


def test_a_port_that_a_service_holds_already_is_tried_all_the_same(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    held = (
        "import socket, time; s = socket.create_server(('0.0.0.0', 6001)); print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(two.inside(sys.executable, "-c", held), stdout=subprocess.PIPE) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == b"ready\n"
            assert "tcp/6001" in two.listens()
            two.ends()
            assert one.reaches(two)["tcp/6001"] == ""
        finally:
            service.kill()


def test_another_machine_with_the_same_address_is_found_by_what_answers(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    alone = one.says("node_machine", f"module.look(address={one.address!r})")
    twin = one.says("node_machine", f"module.look(address={TWIN!r})")
    other = two.says("node_machine", f"module.look(address={TWIN!r})")
    assert alone["claimants"] == []
    assert twin["claimants"] == [other["mac"]] != [twin["mac"]]
    assert twin["hostname"] == socket.gethostname()


SITE = """\
name: north
nodes:
  - {name: one, address: 10.99.0.1, roles: [reservoir, master]}
  - {name: two, address: 10.99.0.2, roles: [worker], agent_port: 6001}
"""


def preflight_of(folder: Path, machines: tuple[Machine, Machine], *, check: bool) -> dict[str, list[tuple[str, str]]]:
    """State and evidence of what a deploy's preflight says of ways, by nodes; Ansible enters the namespaces."""
    site = load(parse(SITE, "site.yml"))
    target = SimpleNamespace(name="debian", release="bookworm", os="debian")
    bundle = Bundle.model_construct(targets=[target], artifacts=[])
    hosts = inventory.build(site, version="1", state=str(folder), root=str(folder))
    asked = preflight.with_questions(hosts, site, [bundle], ROOT / "roles")
    for machine, name in zip(machines, ("one", "two"), strict=True):
        python = folder / f"python-{name}"
        python.write_text(f'#!/bin/sh\nexec {shlex.join(machine.inside("/usr/bin/python3"))} "$@"\n')
        python.chmod(0o755)
        here = {"ansible_connection": "local", "ansible_become": False, "ansible_python3_interpreter": str(python)}
        asked["all"]["hosts"][name] |= here
    state = folder / "state"
    done = playbook.run(
        "preflight", asked, state=state, listen=lambda _: None, publish=preflight.PUBLISHED, check=check
    )
    done.require_success()
    table = preflight.table(site, bundle, done.published)
    return {
        name: [(str(each.state), each.evidence) for each in own if each.id == "ways"] for name, own in table.items()
    }


@pytest.mark.parametrize("check", [True, False], ids=["--check", "deploy"])
def test_a_deploy_names_the_closed_way_and_leaves_nothing_that_listens(
    tmp_path: Path, machines: tuple[Machine, Machine], check: bool
) -> None:
    two = machines[1]
    two.firewall("tcp dport 6001 drop;")
    said = preflight_of(tmp_path, machines, check=check)
    assert said["one"] == [("ok", "2 ports of others were tried")]
    reason = "one does not reach TCP port 6001 of two (agent): no answer within 3 s"
    assert said["two"] == [("fail", reason)], "all else is open, also what nothing serves yet"
    assert set(machines[1].reaches(machines[0]).values()) == {"Connection refused"}


def rules(site: str, node: str) -> str:
    """What role `firewall` writes for a node of a site."""
    host = inventory.build(load(parse(site, "site.yml")), version="1")["all"]["hosts"][node]
    template = (ROOT / "roles/firewall/templates/etc/penstock/firewall.nft.j2").read_text()
    written: str = jinja2.Template(template, trim_blocks=True).render(firewall_openings=host["node_openings"])
    return written


def load_rules(machine: Machine, written: str) -> None:
    words = ["ip", "netns", "exec", machine.namespace, "nft", "--file", "-"]
    subprocess.run(words, input=written, text=True, check=True)


@contextmanager
def serving(machine: Machine, *ports: int) -> Iterator[None]:
    """Have a service that takes connections on ports."""
    bound = f"held = [__import__('socket').create_server(('0.0.0.0', port)) for port in {ports}]"
    script = f"{bound}; print('ready', flush=True); __import__('time').sleep(60)"
    with subprocess.Popen(machine.inside(sys.executable, "-c", script), stdout=subprocess.PIPE) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == b"ready\n"
            yield
        finally:
            service.kill()


WITH_FIREWALL = (
    SITE + "firewall: {enabled: true, networks: [10.99.0.0/24], allow: [{port: 9100, networks: [10.99.0.1]}]}\n"
)


def test_the_firewall_of_a_node_lets_in_what_the_site_opens_and_tells_all_others_at_once(
    machines: tuple[Machine, Machine],
) -> None:
    one, two = machines
    load_rules(two, rules(WITH_FIREWALL, "two"))
    with serving(two, 22, 6001, 9100, 9101, 57_999):
        tried = [
            {"protocol": "tcp", "port": port, "address": two.address, "key": str(port)}
            for port in (22, 6001, 9100, 9101, 57_999)
        ]
        found = one.says("node_ways", f"module.tried({RUN!r}, {tried!r})")
        assert found == {"22": "", "6001": "", "9100": "", "9101": "No route to host", "57999": ""}
        ip("-n", one.namespace, "address", "del", f"{one.address}/24", "dev", "eth0")
        ip("-n", one.namespace, "address", "add", "10.99.0.77/24", "dev", "eth0")
        stranger = one.says("node_ways", f"module.tried({RUN!r}, {tried!r})")
        assert [port for port, reason in stranger.items() if not reason] == ["22"], "only the master calls an agent"
    with serving(one, 8443):
        begun = [{"protocol": "tcp", "port": 8443, "address": "10.99.0.77", "key": "begun"}]
        assert two.says("node_ways", f"module.tried({RUN!r}, {begun!r})") == {"begun": ""}, "nodes call whom they want"


def test_rules_that_are_loaded_again_take_the_place_of_those_before(machines: tuple[Machine, Machine]) -> None:
    _, two = machines
    listed = ["ip", "netns", "exec", two.namespace, "nft", "list", "table", "inet", "penstock_firewall"]
    load_rules(two, rules(WITH_FIREWALL, "two"))
    once = subprocess.run(listed, check=True, capture_output=True).stdout
    load_rules(two, rules(WITH_FIREWALL, "two"))
    assert subprocess.run(listed, check=True, capture_output=True).stdout == once


def test_a_preflight_tries_what_the_firewall_of_an_earlier_deploy_does_not_open_yet(
    tmp_path: Path, machines: tuple[Machine, Machine]
) -> None:
    _, two = machines
    load_rules(two, rules(WITH_FIREWALL.replace("agent_port: 6001", "agent_port: 6002"), "two"))
    assert preflight_of(tmp_path, machines, check=False)["two"] == [("ok", "7 ports of others were tried")]


def test_the_firewall_lets_through_a_preflight_and_nobody_else_meanwhile(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    load_rules(two, rules(WITH_FIREWALL.replace("agent_port: 6001", "agent_port: 6002"), "two"))
    two.listens()
    assert one.reaches(two)["tcp/6001"] == ""
    ip("-n", one.namespace, "address", "del", f"{one.address}/24", "dev", "eth0")
    ip("-n", one.namespace, "address", "add", "10.99.0.77/24", "dev", "eth0")
    assert one.reaches(two)["tcp/6001"] == "No route to host"


def test_a_second_preflight_has_its_own_time(machines: tuple[Machine, Machine]) -> None:
    _, two = machines
    load_rules(two, rules(WITH_FIREWALL, "two"))
    for seconds in (10, 500):
        two.listens(seconds)
    shown = ["ip", "netns", "exec", two.namespace, "nft", "list", "set", "inet", "penstock_firewall", "preflight"]
    said = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    assert said.count("timeout 8m20s") == len(PORTS), said
