"""The optional monitoring, held against Debian's own Prometheus and Alertmanager: configuration, rules, metrics."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from api.endpoints import exposition
from api.endpoints.traffic import Traffic
from api.lists.load import Load
from api.resources.health import metrics
from api.resources.health.schemas import CheckView
from api.tables.nodes import Node, NodeMode, NodeState
from api.tables.sessions import State
from appliance.site import inventory
from appliance.site.model import Site
from tests.tree import ROOT

ROLE = ROOT / "roles/monitoring"
RULES = ROLE / "files/etc/penstock/prometheus-rules.yml"
NODE = {"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}
MAIL = {"mail_server": "mail.example.org", "mail_to": ["ops@example.org", "night@example.org"]}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of promtool and amtool: this machine's, or of Debian's packages, which are not installed."""
    if (found := shutil.which("promtool")) and shutil.which("amtool"):
        return Path(found).parent
    folder = tmp_path_factory.mktemp("prometheus")
    words = ["apt-get", "download", "prometheus", "prometheus-alertmanager"]
    if subprocess.run(words, check=False, capture_output=True, cwd=folder).returncode:
        # a machine without lists of packages
        subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
        subprocess.run(words, check=True, capture_output=True, cwd=folder)
    for deb in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True, capture_output=True)
    return folder / "usr/bin"


def run(program: Path, *words: object, stdin: str = "") -> str:
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(name: str, **parts: Any) -> str:
    """What the role writes for a site."""
    site = Site.model_validate({"name": "s", "nodes": [NODE], **parts})
    told = inventory.build(site, version="1")["all"]["vars"]
    ansible = Environment(trim_blocks=True, undefined=StrictUndefined, autoescape=False)
    ansible.filters["to_json"] = json.dumps
    variables = {"monitoring_settings": told["site_monitoring"], "monitoring_alerts": told["site_alerts"]}
    variables |= {"monitoring_api": "m1:56789", "monitoring_pki": "/etc/penstock/pki"}
    template = ansible.from_string((ROLE / f"templates/etc/{name}.j2").read_text())
    return str(template.render(variables))


def test_prometheus_takes_its_configuration_and_the_rules(tools: Path, tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "prometheus-rules.yml")
    (tmp_path / "monitoring.key").touch()
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/ca.crt").touch()
    text = rendered("penstock/prometheus.yml").replace("/etc/penstock", str(tmp_path))
    (tmp_path / "prometheus.yml").write_text(text)
    said = run(tools / "promtool", "check", "config", tmp_path / "prometheus.yml")
    assert "5 rules found" in said


@pytest.mark.parametrize(
    "parts",
    [
        {"monitoring": {"webhook": "https://ops.example.org/hook"}},
        {"alerts": MAIL},
        {"alerts": MAIL | {"mail_ca": "/etc/ssl/mail.pem"}, "monitoring": {"webhook": "https://ops.example.org/hook"}},
    ],
)
def test_alertmanager_takes_its_configuration(tools: Path, tmp_path: Path, parts: dict[str, Any]) -> None:
    (tmp_path / "alertmanager.yml").write_text(rendered("penstock/alertmanager.yml", **parts))
    said = run(tools / "amtool", "check-config", tmp_path / "alertmanager.yml")
    assert "1 receivers" in said
    written = yaml.safe_load((tmp_path / "alertmanager.yml").read_text())["receivers"][0]
    assert [each["to"] for each in written.get("email_configs", ())] == parts.get("alerts", {}).get("mail_to", [])


def test_what_the_api_says_is_what_prometheus_reads(tools: Path) -> None:
    traffic, load = Traffic(), Load({State.RUNNING: 2}, gpu_milli=8000, held_milli=1500)
    traffic.note({"method": "GET", "path": "/"}, 200, 0.1)
    found = [*metrics.families(*site_with_quotes()), *exposition.of_load(load, 500)]
    said = run(tools / "promtool", "check", "metrics", stdin=exposition.text(found, traffic).decode())
    assert said == ""


def site_with_quotes() -> tuple[list[CheckView], list[tuple[Node, bool]]]:
    plain: dict[str, Any] = dict.fromkeys(CheckView.model_fields)
    plain |= {"id": "00000000-0000-4000-8000-000000000001", "node": "s1", "check": "disk", "thing": '/srv/"a\\b"\n'}
    plain |= {"name": "disk has room", "state": "fail", "evidence": "", "hint": "", "repair": "", "closes": False}
    plain |= {"since": "2026-11-23T12:00:00Z", "acknowledged_by": "", "comment": ""}
    node = Node(name="w1", state=NodeState.LOST, mode=NodeMode.ACTIVE)
    return [CheckView.model_validate({name: plain[name] for name in CheckView.model_fields})], [(node, False)]


FAILS = 'penstock_check_state{node="s1",check="disk",thing="/",repair="",acknowledged="no"}'
QUIET = 'penstock_check_state{node="s1",check="disk",thing="/",repair="",acknowledged="yes"}'
LOOKS = 'penstock_check_state{job="penstock",node="",check="database",acknowledged="no"}'
OPEN = 'penstock_node_open{node="w1",state="lost",mode="active"}'
CLOSED = 'penstock_node_open{node="w2",state="ready",mode="maintenance"}'


def test_rules_tell_of_what_they_are_for_and_of_nothing_else(tools: Path, tmp_path: Path) -> None:
    cases = [
        # the API is away for five minutes, and comes back
        ({'up{job="penstock"}': "1 0x9 1x20", LOOKS: "0x40"}, {"1m": [], "3m": ["PenstockApiAway"], "12m": []}),
        # a check fails, and is acknowledged; it counts no more
        (
            {'up{job="penstock"}': "1x60", LOOKS: "0x60", FAILS: "0 3x9 stale", QUIET: "_x10 3x50"},
            {"30s": [], "3m": ["PenstockCheckFails"], "8m": []},
        ),
        # one that warns has a quarter of an hour
        (
            {'up{job="penstock"}': "1x60", LOOKS: "0x60", FAILS: "2x60"},
            {"10m": [], "20m": ["PenstockCheckWarns"]},
        ),
        # the API answers, and no leader looks
        ({'up{job="penstock"}': "1x60"}, {"2m": [], "8m": ["PenstockNoChecks"]}),
        # a node that nobody has closed takes nothing new
        (
            {'up{job="penstock"}': "1x60", LOOKS: "0x60", OPEN: "0x60", CLOSED: "0x60"},
            {"2m": [], "8m": ["PenstockNodeClosed"]},
        ),
    ]
    names = [rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]]
    tests = [
        {
            "interval": "30s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": moment,
                    "exp_samples": [{"labels": "{}", "value": 1}] if name in firing else [],
                }
                for moment, firing in moments.items()
                for name in names
            ],
        }
        for series, moments in cases
    ]
    shutil.copy(RULES, tmp_path / "rules.yml")
    told = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(told))
    run(tools / "promtool", "test", "rules", tmp_path / "tests.yml")


def test_a_site_has_it_only_where_it_says_so() -> None:
    for enabled, hosts in ((False, []), (True, ["m1"])):
        site = Site.model_validate({"name": "s", "nodes": [NODE], "monitoring": {"enabled": enabled}})
        assert list(inventory.build(site, version="1")["all"]["children"]["monitoring"]["hosts"]) == hosts
