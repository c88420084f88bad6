"""`penstock site` and `penstock lab`: what they print, and with which exit code they end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from appliance.cli.lab import app as lab_app
from appliance.cli.site import app as site_app
from appliance.site import deploy_records, deployment, lab, planning, renewal, report, verification
from appliance.site import uninstall as end
from appliance.site.foreseen import Foreseen
from appliance.site.playbook import Counts
from appliance.site.verdict import NodeVerdict, Verdict
from common.checks import Check, CheckState
from common.errors import InputError, PartialError, Problem, UnauthenticatedError

EXAMPLE = Path(__file__).parents[4] / "inventory/example/site.yml"


def run(app: Any, *words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


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


class TestLab:
    """`penstock lab` hands its work to `appliance.site.lab`, which is played here."""

    @pytest.fixture(autouse=True)
    def _played(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.did: list[str] = []
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setattr(lab, "node_image", lambda _, release, __: f"{release}:hash")
        monkeypatch.setattr(
            lab, "up", lambda _, images, bundle, tell: self.did.append(f"up {' '.join(images.values())} {bundle}")
        )
        self.code = 0
        monkeypatch.setattr(lab, "install", self._install)
        monkeypatch.setattr(lab, "fetch_ca", lambda _, folder: folder / "ca.crt")
        monkeypatch.setattr(lab, "down", lambda name, folder, _: self.did.append(f"down {name} {folder.name}"))

    def _install(self, *_: Any) -> int:
        self.did.append("install")
        return self.code

    def test_up_starts_installs_and_tells_how_to_log_in(self, tmp_path: Path) -> None:
        result = run(lab_app, "up", "-f", EXAMPLE, "--bundle", "b")
        assert self.did == ["up bookworm:hash trixie:hash b", "install"]
        ca = tmp_path / "penstock" / "labs" / "lab" / "ca.crt"
        assert f"penstock login https://10.71.8.10:56789 --user admin --ca {ca}" in result.stdout

    def test_up_ends_as_the_deploy_did(self) -> None:
        self.code = 11
        result = run(lab_app, "up", "-f", EXAMPLE, "--bundle", "b")
        assert result.exit_code == 11
        assert "penstock login" in result.stdout

    def test_up_without_deploy_only_starts(self) -> None:
        run(lab_app, "up", "-f", EXAMPLE, "--bundle", "b", "--no-deploy")
        run(lab_app, "up", "-f", EXAMPLE, "--image", "own:1", "--no-deploy")
        assert self.did == ["up bookworm:hash trixie:hash b", "up own:1 own:1 None"]

    @pytest.mark.parametrize("words", [(), ("--image", "own:1"), ("--no-deploy",)])
    def test_up_needs_a_bundle(self, words: tuple[str, ...]) -> None:
        result = run(lab_app, "up", "-f", EXAMPLE, *words)
        assert isinstance(result.exception, InputError)
        assert "--bundle" in str(result.exception)
        assert not self.did

    def test_down_by_site_file_or_name(self) -> None:
        run(lab_app, "down", "-f", EXAMPLE)
        run(lab_app, "down", "--name", "old")
        assert self.did == ["down lab lab", "down old old"]

    @pytest.mark.parametrize("words", [(), ("-f", EXAMPLE, "--name", "lab")])
    def test_down_must_know_which_lab(self, words: tuple[str, ...]) -> None:
        result = run(lab_app, "down", *words)
        assert isinstance(result.exception, InputError)
        assert not self.did

    def test_down_takes_no_path_as_a_name(self) -> None:
        result = run(lab_app, "down", "--name", "../labs")
        assert isinstance(result.exception, InputError)
        assert not self.did


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


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_plan_tells_what_would_change_and_ends_with_its_code(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    nodes = {"worker1": planning.NodePlan(), "worker2": planning.NodePlan()}
    told = planning.Plan("lab", "1.2.3", "penstock-1.2.3-abc", nodes=nodes)
    monkeypatch.setattr(planning, "plan", lambda *_, **__: told)
    monkeypatch.setattr(deployment, "deploy", lambda *_, **__: pytest.fail("it deployed"))
    words = ("deploy", "-f", EXAMPLE, "--bundle", "bundle", "--plan", "-o", output)
    assert run(site_app, *words).exit_code == 0
    difference = "\n".join(["-one", "+two\x1b[2J", *("+more" for _ in range(30))])
    nodes["worker1"].tasks = [
        Foreseen("Node agent", "Configure the agent", difference),
        Foreseen("Node agent", "Restart the agent", handler=True),
    ]
    result = run(site_app, *words)
    assert result.exit_code == 12
    if output == "json":
        plain = json.loads(result.stdout)
        assert plain["changes"] == 2
        assert plain["nodes"]["worker1"]["tasks"][0]["difference"] == difference
        return
    assert "worker1:\n  Node agent: Configure the agent\n      -one\n      +two\\x1b[2J\n" in result.stdout
    assert "... and 8 more lines, with -o json" in result.stdout
    assert "  then: Node agent: Restart the agent" in result.stdout
    assert "nothing would change on worker2" in result.stdout


def test_a_plan_without_a_worker_names_it_with_the_code_of_what_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = {"worker2": [Problem("worker2: Time: Install", "it does not answer", "start it")]}
    told = planning.Plan("lab", "1.2.3", "penstock-1.2.3-abc", controller=["bundle imported"], left_out=left_out)
    monkeypatch.setattr(planning, "plan", lambda *_, **__: told)
    result = run(site_app, "deploy", "-f", EXAMPLE, "--bundle", "bundle", "--plan")
    assert isinstance(result.exception, PartialError)
    assert "without worker2" in result.stdout


@pytest.mark.parametrize("words", [(), ("--bundle", "bundle", "--check"), ("--bundle", "bundle", "--plan")])
@pytest.mark.parametrize("option", [("--key", "maker.pub"), ("--trust-first",), ("--replace-key",)])
def test_words_about_trust_are_refused_where_nothing_is_imported(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], option: tuple[str, ...]
) -> None:
    for place, name in ((planning, "rehearse"), (planning, "plan"), (deployment, "deploy")):
        monkeypatch.setattr(place, name, lambda *_, **__: pytest.fail("it went on"))
    result = run(site_app, "deploy", "-f", EXAMPLE, *words, *option)
    assert isinstance(result.exception, InputError)
    (problem,) = result.exception.problems
    assert problem.where == option[0]
    assert "import" in problem.reason


def test_a_check_tells_all_that_was_seen_also_where_it_stops_a_deploy(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = {
        "master1": [
            Check("disk.size", "disk is large enough", CheckState.FAIL, "it has 100 GB", "give it more"),
            Check("size", "machine is large enough", CheckState.WARN, "1 of 8 cores", "ask sizing"),
            Check("clock", "clock", CheckState.OK, "0 s away"),
        ]
    }

    def rehearse(*_: Any, tell: Any, **__: Any) -> Any:
        tell(looked)
        raise InputError("it has 100 GB", where="master1: disk.size", hint="give it more")

    monkeypatch.setattr(planning, "rehearse", rehearse)
    words = ("deploy", "-f", EXAMPLE, "--bundle", "bundle", "--check")
    result = run(site_app, *words)
    assert isinstance(result.exception, InputError)
    lines = [line.split(maxsplit=3) for line in result.stdout.splitlines()]
    assert ["FAIL", "master1", "disk.size", "it has 100 GB"] in lines
    assert ["OK", "master1", "clock", "0 s away"] in lines
    assert "size: ask sizing" in result.stdout
    assert "nothing was changed" not in result.stdout
    told = json.loads(run(site_app, *words, "-o", "json").stdout)
    assert told["master1"][1] == {
        "id": "size",
        "name": "machine is large enough",
        "state": "warn",
        "evidence": "1 of 8 cores",
        "hint": "ask sizing",
    }


class Ended:
    """A site as it ends: what the command asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def foreseen(self, *_: Any, **options: Any) -> end.Told:
        self.asked.append(("look", options))
        return {"master": ["stop penstock-api.service"], "worker1": []}

    def uninstall(self, *_: Any, **options: Any) -> end.Told:
        self.asked.append(("end", options))
        return {"master": ["stop penstock-api.service"], "worker1": []}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Ended:
    ended = Ended()
    monkeypatch.setattr(end, "foreseen", ended.foreseen)
    monkeypatch.setattr(end, "uninstall", ended.uninstall)
    return ended


def test_a_site_ends_only_when_somebody_has_seen_what_goes(ended: Ended) -> None:
    result = CliRunner().invoke(site_app, ["uninstall", "-f", str(EXAMPLE), "--purge"], input="n\n")
    assert result.exit_code == 1
    assert "master:\n  stop penstock-api.service\nworker1: nothing\n" in result.output
    assert "ITS DATA" in result.output
    assert ended.asked == [("look", {"purge": True, "left": []})]


def test_a_plan_of_the_end_changes_nothing(ended: Ended) -> None:
    result = run(site_app, "uninstall", "-f", EXAMPLE, "--plan", "-o", "json", "--leave", "worker1,worker2")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["worker1"] == []
    assert ended.asked == [("look", {"purge": False, "left": ["worker1", "worker2"]})]


def test_the_end_says_what_is_kept(ended: Ended) -> None:
    result = run(site_app, "uninstall", "-f", EXAMPLE, "--yes")
    assert "Penstock is removed from 2 nodes" in result.stdout
    assert "kept: /var/lib/penstock" in result.stdout
    assert [what for what, _ in ended.asked] == ["look", "end"]


ENDS = {"ca": datetime(2036, 2, 27, tzinfo=UTC), "one": datetime(2028, 6, 3, tzinfo=UTC)}


def renewed(monkeypatch: pytest.MonkeyPatch, done: renewal.Renewal, *words: str) -> Result:
    monkeypatch.setattr(renewal, "renew", lambda _: done)
    return run(site_app, "renew", *words)


def test_renew_tells_which_certificate_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    result = renewed(monkeypatch, renewal.Renewal(ENDS))
    assert result.exit_code == 0
    said = "nothing to renew: the first certificate to end, that of one, counts until 2028-06-03\n"
    assert result.stdout == said


def test_renew_names_who_got_a_certificate_and_who_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = deployment.Deployment("north", "1.2.3", "penstock-1.2.3-abc", "2028-04-05T04:30:00Z")
    done = renewal.Renewal(ENDS, ["one", "two"], deploy=made)
    assert renewed(monkeypatch, done).stdout == "renewed and brought to its node: one, two\n"
    made.left_out = {"two": [Problem("two", "it does not answer", "mend it")]}
    result = renewed(monkeypatch, done)
    assert isinstance(result.exception, PartialError)
    assert result.stdout == "renewed and brought to its node: one, two, without two\n"
    plain = json.loads(renewed(monkeypatch, done, "-o", "json").stdout)
    assert (plain["ends"]["one"], plain["due"]) == ("2028-06-03T00:00:00Z", ["one", "two"])


def test_renew_names_workers_that_it_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem("two", "the last deploy to two installed something else", "deploy to it")
    result = renewed(monkeypatch, renewal.Renewal(ENDS, ["two"], left_out={"two": [problem]}))
    assert isinstance(result.exception, PartialError)
    assert "installed something else" in str(result.exception)
    assert result.stdout == ""
