"""The scheduler as a function: tables of cases, and properties that hold for every snapshot."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.scheduler.before_decide import decide
from api.scheduler.before_placement import largest_free, place
from api.scheduler.before_snapshot import GpuState, NodeState, Placement, ProjectState, Snapshot, Waiting

START = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, *used: int, sessions: int = 0) -> NodeState:
    gpus = tuple(GpuState(index, f"{name}-{index}", milli) for index, milli in enumerate(used))
    return NodeState(name, gpus, sessions)


def queue(*wanted: tuple[str, str, int]) -> tuple[Waiting, ...]:
    return tuple(
        Waiting(id_, project, milli, START + timedelta(seconds=index))
        for index, (id_, project, milli) in enumerate(wanted)
    )


def projects(**quotas: int) -> tuple[ProjectState, ...]:
    return tuple(ProjectState(name, quota) for name, quota in quotas.items())


def where(placement: Placement | None) -> list[tuple[str, int]] | None:
    return [(share.uuid, share.milli) for share in placement.shares] if placement else None


@pytest.mark.parametrize(
    ("nodes", "milli", "expected"),
    [
        pytest.param([node("a", 0, 0)], 500, [("a-0", 500)], id="a fraction takes the first GPU"),
        pytest.param([node("a", 0, 500)], 500, [("a-1", 500)], id="a fraction fills a shared GPU"),
        pytest.param([node("a", 300, 600)], 400, [("a-1", 400)], id="a fraction takes the fullest that fits"),
        pytest.param([node("a", 300, 700)], 400, [("a-0", 400)], id="the fullest is too full"),
        pytest.param([node("a", 0), node("b", 500)], 500, [("b-0", 500)], id="a shared GPU of another node"),
        pytest.param([node("a", 0, 0), node("b", 0)], 500, [("b-0", 500)], id="a new GPU where fewer are free"),
        pytest.param([node("a", 0, 0, 0), node("b", 0, 0)], 2000, [("b-0", 1000), ("b-1", 1000)], id="tightest node"),
        pytest.param([node("a", 500, 0)], 1000, [("a-1", 1000)], id="a whole GPU is never a shared one"),
        pytest.param([node("a", 500, 500)], 1000, None, id="two halves are no whole"),
        pytest.param(
            [node("a", 0, 0, 0)], 2500, [("a-0", 500), ("a-1", 1000), ("a-2", 1000)], id="two and a half, three GPUs"
        ),
        pytest.param(
            [node("a", 0, 500, 0)], 2500, [("a-0", 1000), ("a-1", 500), ("a-2", 1000)], id="the half fills a shared one"
        ),
        pytest.param([node("a", 0, 0), node("b", 0)], 2500, None, id="not across nodes"),
        pytest.param([node("a", 0), node("b", 0)], 2000, None, id="whole GPUs of one node only"),
        pytest.param([node("a", 0, sessions=100), node("b", 0, 0)], 500, [("b-0", 500)], id="100 sessions fill a node"),
        pytest.param([node("a", *[0] * 16)], 16000, [(f"a-{i}", 1000) for i in range(16)], id="sixteen"),
        pytest.param([node("a", 1200)], 100, None, id="records beyond a GPU leave nothing"),
        pytest.param([], 100, None, id="no nodes"),
    ],
)
def test_placement(nodes: list[NodeState], milli: int, expected: list[tuple[str, int]] | None) -> None:
    assert where(place(nodes, milli)) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [(node("a", 0, 500, 800), 1500), (node("a", 1000), 0), (node("a", 0, 0), 2000), (node("a", 0, sessions=100), 0)],
)
def test_the_largest_free_share(state: NodeState, expected: int) -> None:
    assert largest_free(state) == expected


def test_the_quota_is_a_cap_and_others_pass() -> None:
    waiting = queue(("1", "a", 500), ("2", "a", 500), ("3", "a", 500), ("4", "b", 500))
    decision = decide(Snapshot((node("n", 0, 0, 0, 0),), projects(a=1000, b=500), waiting))
    assert set(decision.placements) == {"1", "2", "4"}
    assert decision.reasons == {"3": "a holds 1 of its 1 GPU"}


def test_what_is_more_than_the_quota_says_so() -> None:
    decision = decide(Snapshot((node("n", 0, 0, 0),), projects(a=2000), queue(("1", "a", 2500))))
    assert decision.reasons == {
        "1": "a holds 0 of its 2 GPUs; this session asks for 2.5 GPUs, more than the whole quota"
    }


def test_no_room_names_the_largest_piece_and_the_position() -> None:
    nodes = (node("worker1", 750, 1000), node("worker2", 900, 1000))
    waiting = queue(("1", "a", 500), ("2", "a", 600))
    decision = decide(Snapshot(nodes, projects(a=9000), waiting))
    assert decision.reasons == {
        "1": "no node has 0.5 GPU free; largest free piece is 0.25 GPU on worker1",
        "2": "no node has 0.6 GPU free; largest free piece is 0.25 GPU on worker1; position 2 in the queue",
    }


def test_everything_in_use_says_so() -> None:
    decision = decide(Snapshot((node("n", 1000),), projects(a=9000), queue(("1", "a", 500))))
    assert decision.reasons == {"1": "no node has 0.5 GPU free; every GPU is in use"}


def test_no_node_is_ready() -> None:
    assert decide(Snapshot((), projects(a=9000), queue(("1", "a", 500)))).reasons == {"1": "no node is ready"}


def test_the_oldest_goes_first_whatever_the_order_of_the_rows() -> None:
    older, younger = queue(("z", "a", 1000), ("a", "a", 1000))
    snapshot = Snapshot((node("n", 0),), projects(a=9000), (younger, older))
    assert set(decide(snapshot).placements) == {"z"}


def test_one_moment_is_ordered_by_id() -> None:
    waiting = (Waiting("b", "a", 1000, START), Waiting("a", "a", 1000, START))
    assert set(decide(Snapshot((node("n", 0),), projects(a=9000), waiting)).placements) == {"a"}


def test_small_ones_cannot_starve_a_large_one() -> None:
    nodes = (node("n1", 0, 0, 0, 500), node("n2", 0, 1000, 1000, 1000))
    waiting = queue(("large", "a", 4000), ("small", "b", 1000), ("smaller", "b", 1000))
    decision = decide(Snapshot(nodes, projects(a=9000, b=9000), waiting))
    assert {id_: placement.node for id_, placement in decision.placements.items()} == {"small": "n2"}
    assert decision.reasons["smaller"] == "n1 is kept for a session that waits longer; position 2 in the queue"


def test_one_that_can_never_run_reserves_nothing() -> None:
    decision = decide(
        Snapshot((node("n", 0, 0),), projects(a=9000), queue(("impossible", "a", 3000), ("small", "a", 1000)))
    )
    assert set(decision.placements) == {"small"}


nodes_of = st.lists(
    st.lists(st.one_of(st.just(0), st.just(1000), st.integers(0, 20).map(lambda step: step * 50)), max_size=6),
    max_size=5,
).map(lambda rows: tuple(node(f"n{index}", *used) for index, used in enumerate(rows)))
quotas_of = st.fixed_dictionaries({name: st.integers(0, 240).map(lambda step: step * 50) for name in "abc"})
queues_of = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 120).map(lambda step: step * 50)), max_size=25
).map(lambda rows: queue(*((f"s{index:02}", project, milli) for index, (project, milli) in enumerate(rows))))


@settings(max_examples=300, deadline=None)
@given(nodes=nodes_of, quotas=quotas_of, waiting=queues_of)
def test_what_holds_for_every_snapshot(
    nodes: tuple[NodeState, ...], quotas: dict[str, int], waiting: tuple[Waiting, ...]
) -> None:
    snapshot = Snapshot(nodes, projects(**quotas), waiting)
    decision = decide(snapshot)
    assert decision == decide(Snapshot(nodes[::-1], snapshot.projects[::-1], waiting[::-1])), (
        "the order does not matter"
    )
    assert set(decision.placements) | set(decision.reasons) == {item.id for item in waiting}
    assert not set(decision.placements) & set(decision.reasons)
    assert all(decision.reasons.values()), "whoever waits is told why"

    wanted = {item.id: item for item in waiting}
    held: Counter[str] = Counter()
    used = Counter({gpu.uuid: gpu.used_milli for item in nodes for gpu in item.gpus})
    home = {gpu.uuid: item.name for item in nodes for gpu in item.gpus}
    occupied = {uuid for uuid, milli in used.items() if milli}
    whole: set[str] = set()
    for id_, placement in decision.placements.items():
        milli = [share.milli for share in placement.shares]
        assert sum(milli) == wanted[id_].gpu_milli, "a session gets exactly what it asks for"
        assert sum(1 for part in milli if part < 1000) <= 1, "at most one GPU is shared"
        assert len({share.uuid for share in placement.shares}) == len(placement.shares)
        assert {home[share.uuid] for share in placement.shares} == {placement.node}, "one node"
        for share in placement.shares:
            if share.milli == 1000:
                assert share.uuid not in occupied, "no GPU is whole and shared at once"
                whole.add(share.uuid)
            assert share.milli == 1000 or share.uuid not in whole, "no GPU is whole and shared at once"
            occupied.add(share.uuid)
            used[share.uuid] += share.milli
        held[wanted[id_].project] += wanted[id_].gpu_milli
    assert all(milli <= 1000 for milli in used.values()), "no GPU is given away twice"
    assert all(held[name] <= quotas[name] for name in quotas), "no quota is passed"


@settings(max_examples=100, deadline=None)
@given(nodes=nodes_of, milli=st.integers(1, 120).map(lambda step: step * 50))
def test_a_share_that_fits_finds_a_place(nodes: tuple[NodeState, ...], milli: int) -> None:
    """A lone session in an unlimited project waits only where no node has enough."""
    decision = decide(Snapshot(nodes, projects(a=1_000_000), queue(("1", "a", milli))))
    whole, fraction = divmod(milli, 1000)

    def fits(item: NodeState) -> bool:
        free = sorted(1000 - gpu.used_milli for gpu in item.gpus)
        wholes = free.count(1000)
        shared = any(fraction <= part < 1000 for part in free)
        return wholes >= whole + (1 if fraction and not shared else 0)

    assert bool(decision.placements) == any(fits(item) for item in nodes)
