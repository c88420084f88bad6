"""A service whose program knows no signs of life hangs under a real systemd: it is started again, and told of."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.site.model import Site
from appliance.site.node_health import NodeHealth
from common import machine_checks
from common.checks import Check
from tests.integration.agent.conftest import make_authority
from tests.integration.reservoir.conftest import (  # noqa: F401
    Machine,
    docker,
    node_image,
    node_images,
    product_bundle,
)
from tests.integration.site.booted import booted
from tests.role_modules import role_module
from tests.tree import ROOT

UNIT = "penstock-edge.service"
WITHIN_S = 8
"""After so long without a sign of life the server is ended: on a busy machine it takes some of that to start."""
AMPLE_S = 60
SERVER = """
import socketserver, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/site/node.crt", "/site/node.key")
class Hello(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            context.wrap_socket(self.request, server_side=True)
        except OSError:
            pass
socketserver.ThreadingTCPServer(("127.0.0.1", 443), Hello).serve_forever()
"""


@dataclass(frozen=True)
class Booted(Machine):
    """A node with systemd, on which the unit of the edge runs a server that shakes hands as nginx does."""

    address: str
    folder: Path

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Wait; returns how long it took."""
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() - begin < within_s, self.run(f"systemctl status {UNIT}; journalctl -u {UNIT} -n 30")
            time.sleep(0.2)
        return time.monotonic() - begin

    def process(self) -> int:
        return int(self.run(f"systemctl show --property=MainPID --value {UNIT}"))

    def service(self) -> Check:
        """The check of the unit, as the controller makes it of what the role's module sees."""
        module = role_module("health/library/node_health.py")
        shown = self.run(f"systemctl show --property=Id,LoadState,ActiveState,SubState -- {UNIT}")
        [check] = machine_checks.units(shown, self.run(" ".join(module.HUNG)))
        return check


@pytest.fixture(scope="module")
def node(node_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:  # noqa: F811
    folder = tmp_path_factory.mktemp("node")
    certificate, key = make_authority(folder).issue("near")
    (folder / "node.crt").write_bytes(certificate.read_bytes())
    (folder / "node.key").write_bytes(key.read_bytes())
    (folder / "server.py").write_text(SERVER)
    template = ROOT / "roles/edge/templates/etc/systemd/system/penstock-edge.service.j2"
    lines = [line for line in template.read_text().splitlines() if not line.startswith(("ExecStartPre", "ExecReload"))]
    text = (
        "\n".join(lines).replace("{{ edge_python }} -I", "/usr/bin/python3").replace("{{ edge_console_port }}", "443")
    )
    text = text.replace("/usr/sbin/nginx -c /etc/penstock/edge.conf", "/usr/bin/python3 /site/server.py")
    text = text.replace("WatchdogSec=60", f"WatchdogSec={WITHIN_S}\nWorkingDirectory=/penstock")
    (folder / UNIT).write_text(text)
    key = folder / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    options = ["--volume", f"{folder}:/site:ro", "--volume", f"{ROOT / 'common'}:/penstock/common:ro"]
    with booted(node_image, options) as machine:
        shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        machine.run("mkdir -p -m 700 /root/.ssh && cp /site/id_ed25519.pub /root/.ssh/authorized_keys")
        yield Booted(machine.identity, docker("inspect", "--format", shown, machine.identity), folder)


def test_a_service_that_hangs_is_started_again_and_one_that_hangs_twice_fails(node: Booted) -> None:
    node.run(f"cp /site/{UNIT} /etc/systemd/system/ && systemctl daemon-reload && systemctl start {UNIT}")
    time.sleep(2 * WITHIN_S)
    process = node.process()
    assert node.service().ok, node.service()
    assert "server.py" in node.run(f"cat /proc/{process}/cmdline"), "systemd's signals reach the program itself"
    for times in (1, 2):
        # who asks is well, and gets no answer any more
        node.run(f"kill -STOP {process}")
        took = node.until(lambda before=process: node.process() not in (0, before), AMPLE_S)  # type: ignore[misc]
        print(f"a service that hangs is started again after {took:.1f} s of its {WITHIN_S} s")
        process = node.process()
        node.until(lambda: node.service().evidence.startswith("active (running)"), AMPLE_S)
        assert node.service().ok == (times < machine_checks.HANGS), node.service()
    assert node.service().evidence == "active (running), hung 2 times within an hour"


def test_the_controller_looks_at_nodes_without_an_agent_by_ssh(node: Booted) -> None:
    """One of them is this machine, as the controller of a site is one of its nodes."""
    nodes = [
        {"name": "here", "address": "192.0.2.1", "roles": ["reservoir", "master"]},
        {"name": "near", "address": node.address, "roles": ["storage"]},
    ]
    ssh = {"private_key": str(node.folder / "id_ed25519")}
    site = Site.model_validate({"name": "north", "nodes": nodes, "ssh": ssh})
    health = NodeHealth(state=node.folder / "state", backups=node.folder / "backup")

    def look() -> dict[tuple[str, str, str], str]:
        return {
            (told.node, check.id, check.thing): check.state
            for told in health.look(site, time.monotonic())
            for check in told.checks
        }

    begin = time.monotonic()
    found = look()
    print(f"a look at two nodes takes {time.monotonic() - begin:.1f} s")
    assert found["near", "answers", ""] == found["here", "answers", ""] == "ok"
    assert found.get(("here", "service", ""), "ok") in ("ok", "unknown"), "here may be no systemd"
    assert found["near", "service", "systemd-journald.service"] == "ok"
    assert found["near", "service", "chrony.service"] == "fail", "this image has none"
    assert found["near", "clock", ""] == "fail"
    assert ("near", "disk", "/") in found
    assert ("near", "memory", "") in found
    node.run("systemctl stop ssh.service; pkill -KILL sshd || true")
    assert look()["near", "answers", ""] == "ok", "one bad look is none"
    assert look()["near", "answers", ""] == "fail"
    assert found["here", "answers", ""] == "ok"
