"""Parts of GPUs: how many fit on one, which GPUs two and a half are, and what sharing gains."""

from __future__ import annotations

import pytest

from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, Snapshot
from common.gpu.share import MILLI
from tests.bench.shares import P100, SHARE, V100, Card, duration_s, makespan_s
from tests.unit.api.scheduler.world import SECOND, check, node, project, work


@pytest.mark.parametrize(("part", "fit"), [(0.125, 8), (0.2, 5), (0.25, 4), (0.3, 3), (0.5, 2)])
def test_a_gpu_holds_as_many_as_fit_and_the_next_waits(part: float, fit: int) -> None:
    queue = tuple(work(f"w{n}", "a", part, n) for n in range(fit + 1))
    snapshot = Snapshot(10 * SECOND, (node("n", 1),), (project("a", 8),), (), queue)
    decision = decide(snapshot)
    check(snapshot, decision)
    assert sorted(decision.placements) == [f"w{n}" for n in range(fit)]
    assert {id_: wait.cause for id_, wait in decision.pending_reasons.items()} == {f"w{fit}": Cause.NO_ROOM}
    left = round(1000 - fit * part * 1000) / 1000
    free = f"largest free piece is {left:g} GPU on n" if left else "every GPU in service that it may use is in use"
    assert decision.pending_reasons[f"w{fit}"].reason == f"no node has {part:g} GPU free; {free}"


def test_two_and_a_half_gpus_are_two_whole_ones_and_a_half() -> None:
    snapshot = Snapshot(0, (node("n", 4),), (project("a", 8),), (), (work("w", "a", 2.5),))
    ((place,),) = decide(snapshot).placements.values()
    assert sorted(share.milli for share in place.shares) == [500, 1000, 1000]
    assert len({share.uuid for share in place.shares}) == 3


def test_the_half_beside_whole_gpus_is_shared_with_others() -> None:
    queue = (work("w", "a", 2.5), work("v", "a", 0.5, 1))
    snapshot = Snapshot(0, (node("n", 3),), (project("a", 8),), (), queue)
    decision = decide(snapshot)
    halves = {share.uuid for places in decision.placements.values() for share in places[0].shares if share.milli == 500}
    assert len(decision.placements) == 2
    assert len(halves) == 1


@pytest.mark.parametrize("card", [V100, P100])
def test_small_trainings_end_sooner_on_shares_than_on_whole_gpus(card: Card) -> None:
    assert makespan_s(card, SHARE) < makespan_s(V100, MILLI) / 2


def test_one_training_alone_is_not_faster_on_a_share() -> None:
    """What is gained is gained by the many."""
    assert duration_s(V100, MILLI) < duration_s(V100, SHARE) < duration_s(P100, SHARE)
    assert makespan_s(V100, MILLI, jobs=8) < makespan_s(V100, SHARE, jobs=8)


def test_a_share_without_the_memory_that_a_training_needs() -> None:
    with pytest.raises(ValueError, match="of a P100 has less than 1024 MiB"):
        duration_s(P100, 50)
