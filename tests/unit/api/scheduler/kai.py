"""Scenarios of KAI-Scheduler as worlds: what is there, and the status that is expected of each workload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from api.scheduler.snapshot import (
    Decision,
    GpuState,
    NodeSnapshot,
    Placement,
    ProjectState,
    Running,
    SchedulerSettings,
    Workload,
)
from common.gpu.share import GpuShare
from tests.unit.api.scheduler.world import SECOND, World

NOW = 100_000
Scenario = Mapping[str, Any]
RUNS, WAITS = ("Running", "Binding", "Allocated"), ("Pending", "Pipelined", "Releasing")


def read(path: Path) -> dict[str, Scenario]:
    """Return the scenarios by their names."""
    return {each["id"]: each for each in json.loads(path.read_text(encoding="utf-8"))["scenarios"]}


def world_of(scenario: Scenario) -> World:
    """Return the cluster of a scenario; nobody reserves anything, and running work is moved, as there."""
    world = World(
        tuple(_node(each) for each in scenario["nodes"]),
        tuple(
            ProjectState(each["name"], each["quota_milli"], each["over_quota"], each["weight"])
            for each in scenario["projects"]
        ),
        SchedulerSettings(reserve_after_s=10 * NOW, consolidation=True, moves_per_hour=100, moves_per_session=100),
        now=NOW,
    )
    for each in scenario["workloads"]:
        workload = _workload(each)
        if not each["placements"]:
            world.submit(workload)
            continue
        places = tuple(
            Placement(
                place["node"],
                tuple(GpuShare(f"{place['node']}-{at}", at, milli) for at, milli in place["shares"]),
            )
            for place in each["placements"]
        )
        world.running[workload.id] = Running(workload, places, workload.submitted_at, each["terminating"])
        if each["deleted"]:
            world.terminating.add(workload.id)
    return world


def differences(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """Return for each workload that is not as expected what is, and what was expected."""
    world = world_of(scenario)
    if scenario["integration"]:
        return _of_rounds(scenario, world)
    decision = world.step()
    found = {name: _status(name, decision, world) for name in scenario["expected"]}
    expected = {name: _wanted(each["status"]) for name, each in scenario["expected"].items()}
    return {name: (found[name], wanted) for name, wanted in expected.items() if found[name] != wanted}


def _of_rounds(scenario: Scenario, world: World) -> dict[str, tuple[str, str]]:
    for _ in range(scenario["rounds_until_match"]):
        _round(world)
    found: dict[str, tuple[str, str]] = {}
    for _ in range(scenario["rounds_after_match"] + 1):
        for name, each in scenario["expected"].items():
            runs = "runs" if name in world.running and not world.running[name].terminating else "waits"
            wanted = "runs" if each["status"] in RUNS else "waits"
            if runs != wanted:
                found[name] = runs, wanted
        _round(world)
    return found


def _round(world: World) -> None:
    """Decide and do it: whoever has to leave is gone by the next round."""
    for reclaim in world.step().reclaims:
        gone = world.running.pop(reclaim.victim)
        world.queue[reclaim.victim] = replace(gone.workload, requeued_at=world.now * SECOND)


def _status(name: str, decision: Decision, world: World) -> str:
    if any(reclaim.victim == name and reclaim.moved for reclaim in decision.reclaims):
        return "pipelined"
    if name in decision.placements or name in world.running:
        return "releasing" if name in world.running and world.running[name].terminating else "runs"
    return "pipelined" if name in decision.reservations else "waits"


def _wanted(status: str) -> str:
    return {"Releasing": "releasing", "Pipelined": "pipelined", "Pending": "waits"}.get(status, "runs")


def _node(row: Mapping[str, Any]) -> NodeSnapshot:
    return NodeSnapshot(
        row["name"],
        tuple(GpuState(at, f"{row['name']}-{at}") for at in range(row["gpus"])),
        row["cpu_milli"],
        row["memory_mib"],
        tuple(row["groups"]),
    )


def _workload(row: Mapping[str, Any]) -> Workload:
    return Workload(
        row["id"],
        row["project"],
        (NOW - row["age_s"]) * SECOND,
        row["id"],
        row["containers"],
        row["gpu_milli"],
        row["cpu_milli"],
        row["memory_mib"],
        row["preemptible"],
        row["priority"],
        groups=tuple(row["groups"]),
    )
