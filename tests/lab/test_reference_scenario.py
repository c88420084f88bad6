"""Quota, over-quota and reclaim in the closed lab: the reference scenario through command line, API, agents and Docker.

Two nodes with eight simulated GPUs each. The steps and what they must lead to stand in `tests/data/tr4858.yml`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.journey import Journey

SCENARIO: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data" / "tr4858.yml").read_text())
PROJECTS: list[dict[str, Any]] = SCENARIO["projects"]
WORKERS = ("worker1", "worker2")


@pytest.fixture(scope="module")
def cluster(journey: Journey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """The lab with the scenario's projects and nothing of other tests in it, for a user who has set no project."""
    everywhere = copy(journey)
    everywhere.config_home = tmp_path_factory.mktemp("config")
    everywhere.login()
    _empty(everywhere)
    known = {project["name"] for project in everywhere.json("project", "list")}
    for project in PROJECTS:
        verb = "update" if project["name"] in known else "create"
        everywhere.penstock("project", verb, project["name"], "--gpus", str(project["quota"]), "--over-quota")
    yield everywhere
    _empty(everywhere)


def _empty(journey: Journey) -> None:
    sessions = _sessions(journey)
    for project in {session["project"] for session in sessions}:
        names = [session["name"] for session in sessions if session["project"] == project]
        journey.penstock("delete", *names, "-p", project)
    journey.until(lambda: not _sessions(journey), "no session of an earlier test is left")


def _sessions(journey: Journey) -> list[dict[str, Any]]:
    """The sessions of every project."""
    sessions: list[dict[str, Any]] = journey.json("list")
    return sessions


def _containers(journey: Journey) -> dict[str, str]:
    """Session and node of every container that Docker runs on the workers, by the container's name."""
    template = '{{.Names}} {{.Label "io.penstock.session-name"}}'
    found = {}
    for worker in WORKERS:
        listed = journey.in_node(worker, "docker", "ps", "--filter", "label=io.penstock.id", "--format", template)
        assert listed.returncode == 0, listed.stderr
        for line in listed.stdout.splitlines():
            container, session = line.split()
            found[container] = f"{session} on {worker}"
    return found


def _state(journey: Journey) -> dict[str, Any]:
    """What the command line says, in the words of the scenario."""
    sessions = _sessions(journey)
    allocated: Counter[str] = Counter({project["name"]: 0 for project in PROJECTS})
    pending: Counter[str] = Counter({project["name"]: 0 for project in PROJECTS})
    for session in sessions:
        if session["state"] == "RUNNING":
            allocated[session["project"]] += session["gpu_milli"]
        if session["state"] == "PENDING":
            pending[session["project"]] += 1
    return {
        "allocated": {name: milli / 1000 for name, milli in allocated.items()},
        "pending": sorted(session["name"] for session in sessions if session["state"] == "PENDING"),
        "pending_per_project": dict(pending),
        "settled": all(session["state"] in ("RUNNING", "PENDING") for session in sessions),
    }


def _submit(journey: Journey, wanted: dict[str, Any]) -> None:
    kind = ("--interactive",) if wanted.get("interactive") else ()
    share = ("-g", str(wanted["gpus"]), "-p", wanted["project"])
    sleeps = ("--command", "sleep", "--args", "infinity")
    journey.penstock("submit", wanted["name"], "-i", "python:3.11", *share, *kind, *sleeps)


def test_every_step_of_the_scenario(cluster: Journey) -> None:
    waited: set[str] = set()
    for step in SCENARIO["steps"]:
        with cluster.phase(step["name"]):
            for wanted in step.get("submit", ()):
                _submit(cluster, wanted)
            if step.get("delete"):
                cluster.penstock("delete", *step["delete"], "-p", "team-d")
            expected = {**step["expect"], "settled": True}

            def reached(expected: dict[str, Any] = expected) -> bool:
                state = _state(cluster)
                return all(state[key] == value for key, value in expected.items())

            cluster.until(reached, f"{step['name']}: {json.dumps(expected)}")
            _check_docker(cluster)
            waited |= set(_state(cluster)["pending"]) if "4.9" in step["name"] else set()
    _check_return(cluster, waited)


def _check_docker(journey: Journey) -> None:
    """What Docker runs is what the command line says, and no GPU holds more than itself."""
    running = [session for session in _sessions(journey) if session["state"] == "RUNNING"]
    wanted = {
        f"penstock-session-{session['id']}-{session['attempt']}-{container['rank']}": (
            f"{session['name']} on {container['node']}"
        )
        for session in running
        for container in session["containers"]
    }
    assert _containers(journey) == wanted
    used: Counter[str] = Counter()
    for session in running:
        for container in session["containers"]:
            used.update({gpu["uuid"]: gpu["milli"] for gpu in container["gpus"]})
    assert used
    assert max(used.values()) <= 1000


def _check_return(journey: Journey, taken_back: set[str]) -> None:
    """Those that were reclaimed were stopped, and run again as new containers."""
    assert taken_back == {"b-4-gg", "c-4-gg"}
    by_name = {session["name"]: session for session in _sessions(journey)}
    for name in taken_back:
        session = by_name[name]
        assert session["attempt"] >= 1, "it was really stopped"
        assert session["state"] == "RUNNING", "the one that waits longest of its project goes on first"
