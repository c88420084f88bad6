"""Nodes that leave a site; the playbook is played here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.site import departure, pki, playbook
from appliance.site.model import Site
from appliance.site.playbook import Result
from common.errors import ConflictError, ProcessError

MASTER = {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
WORKERS = [
    {"name": f"w{number}", "address": f"10.0.0.{number + 2}", "roles": ["worker"], "agent_port": 6001}
    for number in (1, 2)
]
STORAGE = {"name": "w2", "address": "10.0.0.4", "roles": ["storage"]}


def site(*nodes: dict[str, Any]) -> Site:
    return Site.model_validate({"name": "lab", "nodes": [MASTER, *nodes]})


BEFORE = site(*WORKERS)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What a deploy of both workers has left on the controller."""
    pki.issue(BEFORE, tmp_path / "pki")
    record(tmp_path, "1", ok=True, workers=["w1", "w2"])
    record(tmp_path, "2", ok=False, workers=["w1"])
    return tmp_path


def record(state: Path, name: str, **said: Any) -> None:
    (state / "deploys").mkdir(exist_ok=True)
    (state / "deploys" / f"{name}.json").write_text(json.dumps(said))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How the playbook was run, and what the API says in it."""
    play: dict[str, Any] = {"nodes": [], "code": 0}

    def run(name: str, hosts: dict[str, Any], **options: Any) -> Result:
        play.update(name=name, agents=hosts["all"]["vars"]["site_agents"], **options)
        published = {"m1": {departure.NODES: play["nodes"]}}
        return Result(name, log=Path("log"), code=play["code"], published=published)

    monkeypatch.setattr(playbook, "run", run)
    return play


def close(now: Site, state: Path, **options: bool) -> list[str]:
    return departure.close(now, state, playbook.run, **options)


def test_who_has_left(state: Path) -> None:
    assert departure.left(BEFORE, state) == []
    assert departure.left(site(WORKERS[0]), state) == ["w2"], "it has a certificate"
    assert departure.left(site(WORKERS[0], STORAGE), state) == ["w2"], "it was a worker when a deploy last succeeded"


def test_records_of_an_earlier_release_name_no_workers(state: Path) -> None:
    record(state, "3", ok=True)
    assert departure.left(site(WORKERS[0], STORAGE), state) == ["w2"]
    record(state, "4", ok=True, workers=["w1"])
    assert departure.left(site(WORKERS[0], STORAGE), state) == []


def test_nobody_is_asked_where_nobody_has_left(state: Path, tmp_path: Path, played: dict[str, Any]) -> None:
    assert close(BEFORE, state) == []
    assert close(BEFORE, tmp_path / "first-deploy") == []
    assert "name" not in played


def test_an_empty_node_is_closed(state: Path, played: dict[str, Any]) -> None:
    played["nodes"] = [{"name": "w2", "closed": True, "sessions": []}]
    assert close(site(WORKERS[0]), state) == ["w2"]
    assert (played["name"], played["agents"], played["check"]) == ("departure", ["w1"], False)


@pytest.mark.parametrize("check", [False, True])
def test_sessions_on_it_are_named_and_end_the_deploy(state: Path, played: dict[str, Any], check: bool) -> None:
    session = {"name": "train1", "project": "team-a", "user": "ada"}
    played["nodes"] = [{"name": "w2", "closed": True, "sessions": [session]}]
    with pytest.raises(ConflictError) as raised:
        close(site(WORKERS[0]), state, check=check)
    [problem] = raised.value.problems
    assert problem.where == "w2"
    assert "1 sessions run on it: train1 of ada (project team-a)" in problem.reason
    assert ("it takes nothing new from now on" in problem.reason) is not check
    assert "penstock node drain w2" in problem.hint
    assert played["check"] is check


def test_an_api_that_cannot_say_what_runs_ends_the_deploy(state: Path, played: dict[str, Any]) -> None:
    played["code"] = 2
    with pytest.raises(ProcessError):
        close(site(WORKERS[0]), state)
