"""What is told of nodes out of service to those who wait: what is free there, and whom quotas are too much for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, NodeSnapshot, PendingReason, ProjectState, Running, Snapshot, Workload
from tests.unit.api.scheduler.truth import check_reasons
from tests.unit.api.scheduler.world import SECOND, node, on, project, runs, work

NOW = 1000
FULL = "no node has 1 GPU free; every GPU in service that it may use is in use"
ASK = "; ask the administrator when they come back"


def wait(
    nodes: tuple[NodeSnapshot, ...],
    projects: tuple[ProjectState, ...],
    queue: Workload,
    running: tuple[Running, ...],
) -> PendingReason:
    snapshot = Snapshot(NOW * SECOND, nodes, projects, running, (queue,))
    decision = decide(snapshot)
    check_reasons(snapshot, decision)
    return decision.pending_reasons[queue.id]


def closed(name: str, gpus: int = 2, **more: Any) -> NodeSnapshot:
    return node(name, gpus, open=False, **more)


waiting = work("1", "a", 1, NOW)
projects = (project("a", 1), project("b", 2))
busy = runs(work("r", "b", 1), on("n", 1))


@pytest.mark.parametrize(
    ("others", "running", "told"),
    [
        pytest.param((), (), "", id="all in service"),
        pytest.param((closed("x"),), (), "; free on nodes out of service: 2 GPUs (x)" + ASK, id="all free"),
        pytest.param(
            (closed("x"), closed("y", 1)),
            (runs(work("s", "b", 0.5), on("x", 0.5)),),
            "; free on nodes out of service: 2.5 GPUs (x and y)" + ASK,
            id="a part free",
        ),
        pytest.param(
            (closed("x", 1), closed("y")),
            (runs(work("s", "b", 1), on("x", 1)),),
            "; free on nodes out of service: 2 GPUs (y)" + ASK,
            id="one of them full",
        ),
        pytest.param((closed("x", 1),), (runs(work("s", "b", 1), on("x", 1)),), "", id="nothing free"),
        pytest.param(
            (closed("x", 1, unhealthy="the disk is full"),),
            (),
            ", x is unhealthy (the disk is full)",
            id="told as unhealthy already",
        ),
        pytest.param(
            tuple(closed(name, 1) for name in "vwxyz"),
            (),
            "; free on nodes out of service: 5 GPUs (v, w, x and 2 more)" + ASK,
            id="many",
        ),
    ],
)
def test_what_is_free_on_nodes_out_of_service_is_told(
    others: tuple[NodeSnapshot, ...], running: tuple[Running, ...], told: str
) -> None:
    """It is within its quota, and so are others with what they have: nobody is stopped for it."""
    found = wait((node("n", 1), *others), projects, waiting, (busy, *running))
    assert found.cause is Cause.NO_ROOM
    assert found.reason.startswith(f"{FULL}{told}; all quotas come to 3 GPUs"), found.reason


def test_nodes_out_of_service_that_lack_what_it_mounts_are_not_told_of() -> None:
    busy = runs(work("r", "b", 2), on("n", 1, 1))
    without = closed("x", missing_storages=("shared",))
    assert "out of service" in wait((node("n", 2), without), projects, waiting, (busy,)).reason
    mounts = replace(waiting, storages=("shared",))
    assert "out of service" not in wait((node("n", 2), without), projects, mounts, (busy,)).reason


def test_nodes_that_it_may_not_use_are_not_told() -> None:
    found = wait((node("n", 1), closed("x", groups=("red",))), projects, replace(waiting, groups=()), (busy,))
    assert "out of service" not in found.reason


def test_that_quotas_are_more_than_what_is_in_service_is_told_to_whom_has_its_quota_left() -> None:
    many = (project("a", 1), project("b", 2), project("c", 1))
    running = (runs(work("r", "b", 1.5), on("n", 1, 0.5)), runs(work("s", "c", 0.5), on("n", 0, 0.5)))
    found = wait((node("n", 2), closed("x")), many, waiting, running)
    assert found == PendingReason(
        Cause.NO_ROOM,
        FULL + "; free on nodes out of service: 2 GPUs (x)" + ASK + "; all quotas come to 4 GPUs and nodes in service "
        "have 2 GPUs: other projects hold 2 GPUs within what is guaranteed to them",
        1,
    )


def test_it_is_told_also_where_some_of_what_it_asks_for_is_free() -> None:
    running = (runs(work("r", "b", 1), on("n", 1)),)
    asked = work("1", "a", 1, NOW, replicas=2)
    found = wait((node("m", 1), node("n", 1)), (project("a", 2), project("b", 2)), asked, running)
    assert "all quotas come to 4 GPUs and nodes in service have 2 GPUs: other projects hold 1 GPU" in found.reason


def test_it_is_not_told_where_quotas_fit() -> None:
    """What it waits for is one node with two GPUs, of which each of the two nodes has one."""
    running = (runs(work("r", "b", 1), on("m", 1)), runs(work("s", "b", 1), on("n", 1)))
    found = wait((node("m", 2), node("n", 2)), (project("a", 2), project("b", 2)), work("1", "a", 2, NOW), running)
    assert found.reason == "no node has 2 GPUs free; largest free piece is 1 GPU on m"


def test_it_is_not_told_where_enough_is_free_in_pieces() -> None:
    running = (runs(work("r", "b", 1), on("m", 1)), runs(work("s", "b", 1), on("n", 1)))
    found = wait((node("m", 2), node("n", 2)), (project("a", 2), project("b", 4)), work("1", "a", 2, NOW), running)
    assert found.reason == "no node has 2 GPUs free; largest free piece is 1 GPU on m"
