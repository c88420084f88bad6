"""`penstock site`: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.cli.site import app as site_app
from appliance.site import deploy_records, deployment, planning, report, verification
from appliance.site.playbook import Counts
from appliance.site.verdict import NodeVerdict, Verdict
from common.checks import Check, CheckState
from common.errors import InputError, PartialError, Problem, UnauthenticatedError
from tests.unit.appliance.cli.runs import EXAMPLE, run


def test_check_shows_the_nodes() -> None:
    result = run(site_app, "check", "-f", EXAMPLE)
    assert result.exit_code == 0
    assert "worker2   10.71.8.12  worker            6001   -           4 simulated" in result.stdout
    assert "console https://10.71.8.10, API https://10.71.8.10:56789" in result.stdout


def test_check_prints_the_whole_model_as_json() -> None:
    plain = json.loads(run(site_app, "check", "-f", EXAMPLE, "-o", "json").stdout)
    assert plain["nodes"][1]["simulated_gpus"]["count"] == 4
    assert plain["ports"]["registry"] == 5000


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"name: x\n", "this is required"),
    ],
)
def test_a_site_file_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "site.yml"
    if content is not None:
        path.write_bytes(content)
    result = run(site_app, "check", "-f", path)
    assert isinstance(result.exception, InputError)
    assert str(path) in str(result.exception)
    assert reason in str(result.exception)


def deployed(password: str | None, changed: int) -> deployment.Deployment:
    return deployment.Deployment(
        site="lab",
        version="0.1.0",
        bundle="penstock-0.1.0-abc",
        started="2026-01-01T00:00:00Z",
        phases={"Time": 1.25, "Edge": 2.5},
        nodes={"worker1": Counts(ok=5, changed=changed)},
        kept={"worker1": ["/etc/docker/daemon.json"]} if changed else {},
        ok=True,
        admin_password=password,
    )


def test_deploy_prints_phases_addresses_and_the_new_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "deploy", lambda *_, **__: deployed("pass@word1", 7))
    result = run(site_app, "deploy", "-f", EXAMPLE, "--bundle", "bundle")
    assert result.exit_code == 0
    kept = "worker1: /etc/docker/daemon.json, below /var/lib/penstock/kept"
    for words in ("Time", "3.8 s, changed=7", "https://10.71.8.10:56789", "admin / pass@word1", kept):
        assert words in result.stdout


def test_a_second_deploy_prints_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "deploy", lambda *_, **__: deployed(None, 0))
    result = run(site_app, "deploy", "-f", EXAMPLE, "--bundle", "bundle")
    assert "changed=0" in result.stdout
    assert "admin / " not in result.stdout
    plain = json.loads(run(site_app, "deploy", "-f", EXAMPLE, "--bundle", "bundle", "-o", "json").stdout)
    assert plain["nodes"]["worker1"] == {"ok": 5, "changed": 0, "skipped": 0, "failed": 0, "unreachable": 0}
    assert (plain["changes"], plain["phases"]["Edge"]) == (0, 2.5)
    assert "admin_password" not in plain


def test_gpus_that_a_deploy_found_are_written_into_its_site_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, done = tmp_path / "site.yml", deployed(None, 0)
    text = EXAMPLE.read_text()
    done.expected, done.file = {"worker1": {"count": 8, "model": "NVIDIA H100"}}, f"{text}# more\n"
    monkeypatch.setattr(deployment, "deploy", lambda *_, **__: done)
    file.write_text(text)
    file.chmod(0o640)
    result = run(site_app, "deploy", "-f", file)
    assert f"8 NVIDIA H100 of worker1: from now on {file} expects them" in result.stderr
    assert (file.read_text(), file.stat().st_mode & 0o777) == (done.file, 0o640)


def test_a_site_file_that_changed_during_its_deploy_stays_and_the_deploy_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, done = tmp_path / "site.yml", deployed("pass@word1", 1)
    done.expected, done.file = {"worker1": {"count": 8}}, "of the deploy"
    file.write_text(EXAMPLE.read_text())

    def deploy(*_: Any, **__: Any) -> deployment.Deployment:
        file.write_text("of somebody")
        return done

    monkeypatch.setattr(deployment, "deploy", deploy)
    result = run(site_app, "deploy", "-f", file)
    assert (result.exit_code, file.read_text()) == (0, "of somebody")
    assert "pass@word1" in result.stdout
    assert "8 of worker1: not written into the site file" in result.stderr


def test_a_deploy_of_what_was_gone_back_to_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = deployed(None, 0)
    monkeypatch.setattr(deployment, "deploy", lambda *_, **__: done)
    assert "gone back" not in run(site_app, "deploy", "-f", EXAMPLE).stdout
    done.rolled_back = 3
    (line,) = [line for line in run(site_app, "deploy", "-f", EXAMPLE).stdout.splitlines() if "gone back" in line]
    assert line == "serves   publication 3, which was gone back to; `penstock reservoir publish` ends that"


def test_revoke_says_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    revoked: list[str] = []
    monkeypatch.setattr(deployment, "revoke", lambda _, node: revoked.append(node))
    result = run(site_app, "revoke", "-f", EXAMPLE, "worker1")
    assert "run `penstock site deploy` now" in result.stdout
    assert revoked == ["worker1"]


def test_a_rehearsed_deploy_deploys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(planning, "rehearse", lambda *_, **__: done.append("rehearse"))
    monkeypatch.setattr(deployment, "deploy", lambda *_: done.append("deploy"))
    result = run(site_app, "deploy", "-f", EXAMPLE, "--bundle", "bundle", "--check")
    assert "nothing was changed" in result.stdout
    assert done == ["rehearse"]


def test_who_was_left_out_is_named_with_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = {"worker2": [Problem("worker2: Time: Install", "it does not answer", "start it")]}
    asked: list[Any] = []

    def deploy(*_: Any, limit: Any, **__: Any) -> deployment.Deployment:
        asked.append(limit)
        done = deployed("pass@word1", 7)
        done.left_out = left_out
        return done

    monkeypatch.setattr(deployment, "deploy", deploy)

    def rehearse(*_: Any, limit: Any, **__: Any) -> Any:
        asked.append(limit)
        return left_out

    monkeypatch.setattr(planning, "rehearse", rehearse)
    words = ("deploy", "-f", EXAMPLE, "--bundle", "bundle")
    for more in ((), ("--limit", "worker1,worker2"), ("-o", "json"), ("--check", "--limit", "worker2")):
        result = run(site_app, *words, *more)
        assert isinstance(result.exception, PartialError)
        assert result.exception.exit_code == 11
        assert str(result.exception) == "worker2: Time: Install: it does not answer. Hint: start it"
        if "json" in more:
            assert json.loads(result.stdout)["left_out"]["worker2"][0]["reason"] == "it does not answer"
        elif "--check" in more:
            assert "fit, without worker2; nothing was changed" in result.stdout
        else:
            assert "changed=7, without worker2" in result.stdout
            assert "admin / pass@word1" in result.stdout
    assert asked == [None, ["worker1", "worker2"], None, ["worker2"]]


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("warn", 0), ("fail", 1), ("unknown", 1)])
def test_verify_prints_one_verdict_and_exits_accordingly(
    monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    check = Check("answers", "answers", CheckState(state), "seen", "a hint", "worker1", "5-E", "2026-01-01T00:00:00Z")
    verdict = Verdict("lab", "2026-01-01T00:00:00Z", {"worker1": NodeVerdict([check])})
    monkeypatch.setattr(verification, "verify", lambda *_, **__: verdict)
    result = run(site_app, "verify", "-f", EXAMPLE)
    assert result.exit_code == code
    plain = json.loads(result.stdout)
    assert (plain["ok"], plain["state"]) == (code == 0, state)
    assert plain["nodes"]["worker1"]["checks"] == [
        {
            "id": "answers",
            "name": "answers",
            "state": state,
            "ok": code == 0,
            "subject": "worker1",
            "evidence": "seen",
            "hint": "a hint",
            "repair": "5-E",
            "since": "2026-01-01T00:00:00Z",
        }
    ]


def test_a_smoke_test_needs_a_login_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(verification, "verify", lambda *_, **__: pytest.fail("it was asked"))
    result = run(site_app, "verify", "-f", EXAMPLE, "--smoke")
    assert isinstance(result.exception, UnauthenticatedError)


def test_report_prints_what_it_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verification, "verify", lambda *_, **__: Verdict("lab", "now", {}))
    monkeypatch.setattr(deploy_records, "read", lambda _: [])
    monkeypatch.setattr(report, "write", lambda _site, _verdict, _deploys, folder: [folder / "report.md"])
    assert run(site_app, "report", "-f", EXAMPLE, "-o", tmp_path).stdout == f"{tmp_path}/report.md\n"


def test_kubernetes_prints_what_an_administrator_applies(tmp_path: Path) -> None:
    site = tmp_path / "site.yml"
    cluster = {"api": "https://10.0.0.50:6443", "namespace": "gpu"}
    nodes = [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {"name": "k8s1", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001, "kubernetes": cluster},
    ]
    site.write_text(json.dumps({"name": "north", "nodes": nodes}))
    printed = list(yaml.safe_load_all(run(site_app, "kubernetes", "k8s1", "-f", site).stdout))
    assert [item["kind"] for item in printed][:2] == ["Namespace", "ServiceAccount"]
    assert {item["metadata"].get("namespace", "gpu") for item in printed} == {"gpu"}
    assert printed[-1]["kind"] == "NetworkPolicy"
    assert isinstance(run(site_app, "kubernetes", "m1", "-f", site).exception, InputError)
