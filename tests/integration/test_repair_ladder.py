"""Repairs by Ansible on one node that is this machine; its systemd is played, all else is not."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.site import inventory, pki, settings
from appliance.site.model import Site
from appliance.site.repair import ladder
from appliance.site.repair.record import Record, Records
from common.repairs import RunState

SYSTEMCTL = """#!/bin/sh
# Units run unless there is a file of their name; what is started loses it.
stopped=$(dirname "$0")/stopped
command=$1; shift
state() { [ -e "$stopped/$1" ] && echo inactive || echo active; }
case $command in
    start) rm -f "$stopped/$1" ;;
    show)
        for word; do
            case $word in
                --*) ;;
                *) case "$*" in *--value*) state "$word"; echo ;; *) echo "Id=$word"; echo LoadState=loaded; \
echo ActiveState=$(state "$word") ;; esac ;;
            esac
        done ;;
esac
"""


class Agent(http.server.BaseHTTPRequestHandler):
    """An agent that answers."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site of this machine alone, whose agent answers."""
    agent = http.server.HTTPServer(("127.0.0.1", 0), Agent)
    node = {"name": "localhost", "address": "10.0.0.1", "roles": ["reservoir", "master", "worker"]}
    site = Site.model_validate({"name": "s", "nodes": [node | {"agent_port": agent.server_port}]})
    pki.issue(site, tmp_path / "pki")
    own = tmp_path / "pki/nodes/localhost"
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(own / "node.crt", own / "node.key")
    agent.socket = trust.wrap_socket(agent.socket, server_side=True)
    threading.Thread(target=agent.serve_forever, daemon=True).start()
    (own / "ca.crt").write_bytes((tmp_path / "pki/ca.crt").read_bytes())
    (tmp_path / "stopped").mkdir()
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    found, build = settings.search_path(), inventory.build

    def built(*arguments: Any, **options: Any) -> dict[str, Any]:
        hosts = build(*arguments, **options)
        # a few of its services, for each is a call of Ansible
        few = {"restarts_services": ["chrony.service", "nginx.service", "docker.service"]}
        hosts["all"]["hosts"]["localhost"] |= {"repair_pki": str(own), "repair_images": [], **few}
        return hosts

    monkeypatch.setattr(settings, "search_path", lambda: f"{tmp_path}:{found}")
    monkeypatch.setattr(inventory, "build", built)
    monkeypatch.setattr(ladder, "require_controller", lambda _: None)
    yield site
    agent.shutdown()
    agent.server_close()


def test_what_a_node_runs_is_started_though_its_agent_answers(site: Site, tmp_path: Path) -> None:
    """Also a cluster of PostgreSQL behind Debian's unit of all clusters, which says that it runs."""
    stopped = tmp_path / "stopped"
    for unit in ("docker.service", "docker.socket", "nginx.service", "postgresql@15-main.service"):
        (stopped / unit).touch()
    record = ladder.climb(site, Record("5-D", by="root"), Records(tmp_path / "repairs"), state=tmp_path / "state")
    assert (record.state, list(stopped.iterdir())) == (RunState.REPAIRED, []), record.reason
    rungs = [(step.rung, step.ok) for step in record.steps if step.rung]
    assert rungs == [("start_services", True)]


@pytest.mark.parametrize("allowed", [False, True])
def test_a_ladder_comes_to_a_reboot_only_where_the_site_allows_it(site: Site, tmp_path: Path, allowed: bool) -> None:
    """Rehearsed by Ansible itself, which reboots no machine that it runs on; the API here lists no node."""
    site = site.model_copy(update={"repair": site.repair.model_copy(update={"reboot": allowed})})
    order = Record("5-G", by="root", dry_run=True, agreed=True)
    record = ladder.climb(site, order, Records(tmp_path / "repairs"), state=tmp_path / "state")
    rungs = [step.rung for step in record.steps if step.rung]
    rebooted = [task for step in record.steps for task in step.tasks if task.startswith("Reboot the node: ")]
    if allowed:
        assert (record.state, rungs, len(rebooted)) == (RunState.REHEARSED, ["join_worker", "reboot"], 1), record.reason
    else:
        assert (record.state, rungs, rebooted) == (RunState.REFUSED, ["join_worker"], [])
        assert "the site allows no reboot" in record.reason
