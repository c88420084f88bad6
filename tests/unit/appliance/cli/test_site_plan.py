"""`penstock site deploy --plan` and `--check`: what would change, and what was seen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.cli.site import app as site_app
from appliance.site import deployment, planning
from appliance.site.foreseen import Foreseen
from common.checks import Check, CheckState
from common.errors import InputError, PartialError, Problem
from tests.unit.appliance.cli.runs import EXAMPLE, run


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
