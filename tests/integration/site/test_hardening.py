"""Limits of services under a real systemd: what is left to each, and that the controller still does its work."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.edge import rendered
from tests.integration.reservoir.conftest import (  # noqa: F401
    Machine,
    node_image,
    node_images,
)
from tests.integration.site.booted import booted
from tests.tree import ROOT

LIMITS = ROOT / "roles/hardening/files/etc/systemd/system"
STATE = "/var/lib/penstock/site"
WITHIN_S = 60
UNITS = {
    "penstock-controller.service": ("repair_orders", ("controller",), 3.0, {}),
    "penstock-backup.service": ("backup", ("playbooks",), 7.0, {}),
    "penstock-renewal.service": ("renewal", ("playbooks",), 7.0, {}),
    "penstock-log-limit@.service": ("log_store", ("hardening", "log-limit"), 3.0, {"log_store_share_mib": 64}),
    "penstock-log-store@.service": ("log_store", ("hardening", "strict"), 2.0, {}),
}
"""By a unit its role, the drop-ins that limit it, and below what its exposure is then."""

WORK = f"""\
#!/usr/bin/python3
'''What the controller does, each by itself: what went well, and what did not and why.'''
import fcntl, json, multiprocessing, os, pathlib, pty, socket, subprocess, time
said = {{}}
def tried(name):
    def run(work):
        try:
            said[name] = work() or "done"
        except Exception as error:
            said[name] = f"{{type(error).__name__}}: {{error}}"
    return run
def program(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr + f"code {{done.returncode}}"
state = pathlib.Path({STATE!r})
tried("state")(lambda: (state / "known_hosts").write_text("x") and "")
tried("lock")(lambda: fcntl.flock((state / "lock").open("w"), fcntl.LOCK_EX))
tried("terminal")(lambda: os.close(pty.openpty()[0]))
tried("workers")(lambda: multiprocessing.Lock().acquire() and "")
tried("keys")(lambda: pathlib.Path("/root/.ssh/id").read_text() and "")
own = os.environ.get("ANSIBLE_SSH_CONTROL_PATH_DIR") or os.path.expanduser("~/.ansible/cp")
tried("connections")(lambda: os.makedirs(own, exist_ok=True) or socket.socket(socket.AF_UNIX).bind(own + "/one"))
tried("others")(lambda: pathlib.Path("/var/lib/theirs/secret").read_text() and "")
tried("network")(lambda: socket.create_server(("127.0.0.1", 0)).close())
tried("netlink")(lambda: program("ip", "address"))
tried("show")(lambda: program("systemctl", "show", "--property=ActiveState", "--", "dbus.service"))
tried("journal")(lambda: program("journalctl", "--quiet", "--lines=1"))
tried("order")(lambda: program(
    "systemd-run", "--quiet", "--collect", "--wait", "--unit=penstock-repair-1", "--property=RuntimeMaxSec=1min",
    "/bin/sh", "-c", "echo ordered > /etc/ordered && chown 7 /etc/ordered"))
tried("disk")(lambda: os.statvfs("/var/lib") and "")
for name, path in dict(system="/etc/changed", program="/usr/changed", home="/root/changed").items():
    tried(name)(lambda path=path: pathlib.Path(path).write_text("x") and "")
tried("device")(lambda: os.mknod("/tmp/device", 0o600 | 0o60000, 0x801))
tried("mount")(lambda: program("mount", "-t", "tmpfs", "none", "/mnt"))
(state / "said.json").write_text(json.dumps(said))
while True:
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def node(node_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:  # noqa: F811
    """A node with the units and their limits, whose controller tries all that the real one does."""
    folder = tmp_path_factory.mktemp("node")
    for unit, (role, kinds, _, variables) in UNITS.items():
        (folder / unit).write_text(rendered(role, f"etc/systemd/system/{unit}", **variables))
        (folder / f"{unit}.d").mkdir()
        for kind in kinds:
            (folder / f"{unit}.d/penstock-{kind}.conf").write_text((LIMITS / f"penstock-{kind}.conf").read_text())
    (folder / "penstock").write_text(WORK)
    (folder / "penstock").chmod(0o755)
    with booted(node_image, ["--volume", f"{folder}:/site:ro"]) as machine:
        machine.run("cp --recursive /site/penstock-* /etc/systemd/system/; cp /site/penstock /usr/local/bin/")
        machine.run(f"mkdir -p {STATE} /root/.ssh /var/lib/theirs; echo key > /root/.ssh/id")
        machine.run("echo x > /var/lib/theirs/secret; chown -R 7:7 /var/lib/theirs; chmod -R go= /var/lib/theirs")
        machine.run("systemctl daemon-reload")
        yield machine


def test_units_have_little_left(node: Machine) -> None:
    for unit in UNITS:
        name = unit.replace("@.", "@x.")
        said = node.run(f"systemd-analyze security --no-pager {name} | tail -1")
        level = float(re.findall(r"([\d.]+) [A-Z]+", said)[0])
        assert level < UNITS[unit][2], said
        assert "Unknown" not in node.run(f"systemd-analyze verify {name} 2>&1 || true"), unit


def test_the_controller_does_its_work_and_nothing_else(node: Machine) -> None:
    node.run("systemctl start penstock-controller")
    deadline = time.monotonic() + WITHIN_S
    while not (text := node.run(f"cat {STATE}/said.json 2>/dev/null; true")):
        assert time.monotonic() < deadline, node.run("systemctl status penstock-controller; true")
        time.sleep(0.2)
    said = json.loads(text)
    refused = {name: said.pop(name) for name in ("system", "program", "home", "device", "mount")}
    assert said == dict.fromkeys(said, "done")
    assert "done" not in refused.values(), refused
    assert node.run("cat /etc/ordered; stat --format=%u /etc/ordered").split() == ["ordered", "7"], "without its limits"


def test_files_of_this_test_are_those_of_the_role() -> None:
    assert {kind for _, kinds, _, _ in UNITS.values() for kind in kinds} <= {
        Path(path).stem.removeprefix("penstock-") for path in LIMITS.glob("*.conf")
    }
