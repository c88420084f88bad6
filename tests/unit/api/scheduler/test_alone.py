"""Under `mps` a part of a GPU is alone in its container: placement, feasibility and the pending reason know that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, NodeSnapshot, PendingReason, Running, Snapshot
from common.gpu.kinds import Enforcement
from tests.unit.api.scheduler.world import SECOND, node, on, project, runs, work


def held_by(kind: Enforcement, name: str) -> NodeSnapshot:
    """A node whose GPUs hold parts in this way."""
    plain = node(name, 3)
    return replace(plain, gpus=tuple(replace(gpu, enforcement=kind) for gpu in plain.gpus))


ON_MPS, ON_SHIM = held_by(Enforcement.MPS, "a-mps"), held_by(Enforcement.SHIM, "b-shim")
NEVER = (
    "the nodes that it may use hold parts of GPUs by mps, each alone in its container"
    "; ask for a part of one GPU, or for whole ones"
)


def judge(
    nodes: tuple[NodeSnapshot, ...], gpus: float, *running: Running, enforcement: Enforcement = Enforcement.NONE
) -> str | PendingReason:
    """The node that a session gets, or why it waits."""
    session = work("w", "a", gpus, enforcement=enforcement)
    decision = decide(Snapshot(9 * SECOND, nodes, (project("a", 8),), running, (session,)))
    return decision.placements["w"][0].node if "w" in decision.placements else decision.pending_reasons["w"]


@pytest.mark.parametrize(
    ("gpus", "nodes", "where"),
    [
        (0.5, (ON_MPS,), "a-mps"),
        (1, (ON_MPS,), "a-mps"),
        (2, (ON_MPS,), "a-mps"),
        (1.5, (ON_MPS, ON_SHIM), "b-shim"),
        (2.5, (ON_MPS, ON_SHIM), "b-shim"),
        (2.5, (ON_MPS, node("n", 3)), "n"),
    ],
)
def test_where_a_session_goes(gpus: float, nodes: tuple[NodeSnapshot, ...], where: str) -> None:
    assert judge(nodes, gpus) == where


@pytest.mark.parametrize("gpus", [1.5, 2.5])
def test_a_part_beside_whole_gpus_can_never_be_had_where_all_nodes_hold_parts_by_mps(gpus: float) -> None:
    assert judge((ON_MPS,), gpus) == PendingReason(Cause.NEVER_FITS, NEVER, 1)
    assert judge((ON_MPS,), gpus, enforcement=Enforcement.MPS) == PendingReason(Cause.NEVER_FITS, NEVER, 1)


def test_too_weak_a_kind_is_told_before_that() -> None:
    wait = judge((ON_MPS,), 1.5, enforcement=Enforcement.SHIM)
    assert isinstance(wait, PendingReason)
    assert wait.reason.startswith("no GPU that it may use holds shares by shim or better, the best is mps")


def test_free_gpus_of_such_a_node_are_no_piece_for_it() -> None:
    """It waits for the other node, and reads so."""
    busy = runs(work("r", "b", 3, preemptible=False), on("b-shim", 1, 1, 1))
    wait = judge((ON_MPS, ON_SHIM), 1.5, busy)
    in_use = "every GPU in service that it may use is in use"
    assert wait == PendingReason(Cause.NO_ROOM, f"no node has 1.5 GPUs free; {in_use}", 1)
    stopped = replace(ON_SHIM, open=False)
    wait = judge((ON_MPS, stopped), 1.5)
    assert isinstance(wait, PendingReason)
    assert wait.reason == (
        "no node has 1.5 GPUs free; no node with a GPU that can be had in part beside whole ones is ready; free on "
        "nodes out of service: 3 GPUs (b-shim); ask the administrator when they come back"
    )


def test_nobody_is_taken_back_for_places_that_would_not_do() -> None:
    """Its project is owed them, and who runs there is beyond its quota; the other node is closed."""
    busy = runs(work("r", "b", 3), on("a-mps", 1, 1, 1))
    projects = (project("a", 3), project("b", 0))
    queue = (work("w", "a", 1.5),)
    nodes = (ON_MPS, replace(ON_SHIM, open=False))
    assert not decide(Snapshot(9 * SECOND, nodes, projects, (busy,), queue)).reclaims
