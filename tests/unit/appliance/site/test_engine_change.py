"""The change of a site's engine; the playbook is played here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.site import engine_change
from appliance.site.model import Site
from appliance.site.playbook import Result
from common.errors import ConflictError, ProcessError

MASTER = {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
WORKER = {
    "name": "w1",
    "address": "10.0.0.3",
    "roles": ["worker"],
    "agent_port": 6001,
    "simulated_gpus": {"count": 2},
}
DIRECT = Site.model_validate({"name": "lab", "nodes": [MASTER, WORKER]})
OF_SLURM = {**WORKER, "slurm": {"cores": 4, "memory_mib": 8000}}
SLURM = Site.model_validate({"name": "lab", "engine": "slurm", "nodes": [MASTER, OF_SLURM]})


class World:
    """What a controller remembers of its deploys, and what the API says."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.sessions = [{"name": "train1", "project": "team-a", "user": "ada"}]
        self.code = 0
        self.asked: list[dict[str, Any]] = []

    def deployed(self, **said: Any) -> None:
        folder = self.state / "deploys"
        folder.mkdir(exist_ok=True)
        (folder / f"{len([*folder.iterdir()])}.json").write_text(json.dumps({"ok": True, "reached": ["m1"], **said}))

    def run(self, name: str, hosts: dict[str, Any], *, publish: list[str], check: bool) -> Result:
        self.asked.append({"name": name, "workers": hosts["all"]["vars"]["site_agents"], "check": check})
        nodes = [{"name": name, "closed": False, "sessions": self.sessions} for name in ("w1", "w2")]
        return Result(name, log=Path("log"), code=self.code, published={"m1": {publish[0]: nodes}})

    def require(self, site: Site) -> None:
        engine_change.require_idle(site, self.state, self.run)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_engine_is_not_changed_while_sessions_run_and_they_are_named(world: World) -> None:
    world.deployed(engine="direct")
    with pytest.raises(ConflictError) as raised:
        world.require(SLURM)
    [problem] = raised.value.problems
    assert problem.where == "engine"
    assert problem.reason == "the site has direct, and 1 sessions run: train1 of ada (project team-a)"
    assert "penstock node drain" in problem.hint
    assert "write `engine: direct`" in problem.hint


def test_no_node_is_closed_by_the_question(world: World) -> None:
    world.deployed(engine="slurm")
    with pytest.raises(ConflictError, match="the site has slurm"):
        world.require(DIRECT)
    assert world.asked == [{"name": "departure", "workers": [], "check": True}]


def test_many_sessions_are_not_all_named(world: World) -> None:
    world.deployed(engine="direct")
    world.sessions = [{"name": f"s{number:02}", "project": "p", "user": "ada"} for number in range(25)]
    with pytest.raises(ConflictError, match=r"25 sessions run: s00 of ada .*s19 of ada \(project p\), and 5 more"):
        world.require(SLURM)


def test_a_site_where_nothing_runs_changes_its_engine(world: World) -> None:
    world.deployed(engine="direct")
    world.sessions = []
    world.require(SLURM)
    assert world.asked


@pytest.mark.parametrize(("site", "engine"), [(DIRECT, "direct"), (SLURM, "slurm")])
def test_nobody_is_asked_where_the_engine_stays(world: World, site: Site, engine: str) -> None:
    world.require(site)
    world.deployed(engine=engine)
    world.require(site)
    assert world.asked == []


def test_a_site_of_an_earlier_release_had_no_slurm(world: World) -> None:
    world.deployed()
    world.require(DIRECT)
    assert world.asked == []
    with pytest.raises(ConflictError, match="the site has direct"):
        world.require(SLURM)


def test_a_deploy_that_was_refused_has_changed_no_engine(world: World) -> None:
    world.deployed(engine="direct")
    world.deployed(engine="", ok=False, reached=[])
    world.require(DIRECT)
    assert world.asked == []


@pytest.mark.parametrize("site", [DIRECT, SLURM])
def test_a_change_that_did_not_come_to_its_end_may_have_left_sessions_of_both(world: World, site: Site) -> None:
    world.deployed(engine="direct")
    world.deployed(engine="slurm", ok=False, reached=[])
    with pytest.raises(ConflictError):
        world.require(site)


def test_an_api_that_cannot_say_what_runs_ends_the_deploy(world: World) -> None:
    world.deployed(engine="direct")
    world.code = 2
    with pytest.raises(ProcessError):
        world.require(SLURM)
