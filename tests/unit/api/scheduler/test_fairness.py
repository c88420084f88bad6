"""What each project is entitled to: tables, and properties that hold for every cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.fairness import ProjectDemand, divide, fair_shares, in_whole_workloads
from api.scheduler.snapshot import ProjectState


def claim(name: str, quota: int, demand: int, *, weight: int | None = None, over_quota: bool = True) -> ProjectDemand:
    return ProjectDemand(ProjectState(name, quota, over_quota, weight), demand)


@pytest.mark.parametrize(
    ("capacity", "claims", "expected"),
    [
        pytest.param(
            16000,
            [claim("a", 4000, 8000), claim("b", 2000, 6000), claim("c", 2000, 6000), claim("d", 8000, 0)],
            {"a": 8000, "b": 4000, "c": 4000, "d": 0},
            id="TR-4858 4.10: what d leaves idle goes 4:2:2",
        ),
        pytest.param(
            16000,
            [claim("a", 4000, 4000), claim("b", 2000, 4000), claim("c", 2000, 4000), claim("d", 8000, 8000)],
            {"a": 4000, "b": 2000, "c": 2000, "d": 8000},
            id="nothing is spare",
        ),
        pytest.param(
            8000, [claim("a", 4000, 1000), claim("b", 2000, 9000)], {"a": 1000, "b": 7000}, id="only who wants it"
        ),
        pytest.param(
            12000,
            [claim("a", 1000, 9000, weight=3), claim("b", 1000, 9000, weight=1)],
            {"a": 8500, "b": 3500},
            id="by weight, whatever the quota",
        ),
        pytest.param(
            10000,
            [claim("a", 2000, 9000, weight=4), claim("b", 4000, 9000)],
            {"a": 4000, "b": 6000},
            id="a weight of 4 is worth a quota of 4 GPUs",
        ),
        pytest.param(9000, [claim(n, 0, 9000) for n in "abc"], dict.fromkeys("abc", 3000), id="no quota: equal parts"),
        pytest.param(
            10000,
            [claim("a", 2000, 9000), claim("b", 0, 9000)],
            {"a": 9000, "b": 1000},
            id="without weight after all with one",
        ),
        pytest.param(
            10000,
            [claim("a", 2000, 9000, over_quota=False), claim("b", 2000, 9000)],
            {"a": 2000, "b": 8000},
            id="a hard cap",
        ),
        pytest.param(
            4000, [claim("a", 4000, 4000), claim("b", 4000, 4000)], {"a": 4000, "b": 4000}, id="more quota than GPUs"
        ),
        pytest.param(
            10,
            [claim("a", 0, 99), claim("b", 0, 99), claim("c", 0, 99)],
            {"a": 4, "b": 3, "c": 3},
            id="equal remainders by name",
        ),
        pytest.param(
            11000,
            [claim("a", 1000, 2000), claim("b", 1000, 9000), claim("c", 2000, 9000)],
            {"a": 2000, "b": 3000, "c": 6000},
            id="what a does not want goes on by weight",
        ),
        pytest.param(0, [claim("a", 0, 1000)], {"a": 0}, id="no GPUs"),
    ],
)
def test_shares(capacity: int, claims: list[ProjectDemand], expected: dict[str, int]) -> None:
    assert fair_shares(capacity, claims) == expected


def test_the_largest_remainders_get_what_whole_numbers_leave_over() -> None:
    assert divide(10, {"a": (99, 1), "b": (99, 3), "c": (99, 3)}) == {"a": 2, "b": 4, "c": 4}
    assert divide(2, {"a": (99, 5), "b": (99, 4)}) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("weights", "held", "expected"),
    [
        pytest.param((3, 2, 1), (3000, 1000, 0), (2000, 1000, 1000), id="the largest remainder"),
        pytest.param((1, 1, 1), (0, 0, 0), (2000, 1000, 1000), id="equal remainders by name"),
        pytest.param((1, 1, 1), (1000, 2000, 1000), (1000, 2000, 1000), id="equal remainders to who holds the most"),
    ],
)
def test_shares_of_four_gpus_in_whole_sessions(
    weights: tuple[int, ...], held: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    claims = [
        ProjectDemand(ProjectState(name, 0, weight=weight), 4000, milli, 1000)
        for name, weight, milli in zip("abc", weights, held, strict=True)
    ]
    assert in_whole_workloads(fair_shares(4000, claims), claims) == dict(zip("abc", expected, strict=True))


claims_of = st.lists(
    st.builds(
        lambda quota, demand, weight, over: (quota * 50, demand * 50, weight, over),
        st.integers(0, 200),
        st.integers(0, 400),
        st.sampled_from([None, 0, 1, 2, 3, 5]),
        st.booleans(),
    ),
    max_size=8,
).map(lambda rows: [claim(f"p{i}", q, d, weight=w, over_quota=o) for i, (q, d, w, o) in enumerate(rows)])


@given(capacity=st.integers(0, 2000).map(lambda step: step * 50), claims=claims_of)
def test_what_holds_for_every_cluster(capacity: int, claims: list[ProjectDemand]) -> None:
    shares = fair_shares(capacity, claims)
    assert shares == fair_shares(capacity, claims[::-1]), "the order does not matter"
    guaranteed = sum(each.guaranteed for each in claims)
    wanted = sum(each.guaranteed + each.beyond for each in claims)
    assert sum(shares.values()) == max(guaranteed, min(capacity, wanted)), "all that is wanted, up to the capacity"
    for each in claims:
        share = shares[each.project.name]
        assert each.guaranteed <= share <= each.guaranteed + each.beyond
        for other in claims:  # nobody who wants more got less for its weight than another, but for one milli-GPU
            mine, its = share - each.guaranteed, shares[other.project.name] - other.guaranteed
            if each.weight and mine < each.beyond:
                assert (mine + 1) * max(other.weight, 0) >= (its - 1) * each.weight or not other.weight
                assert other.weight or its == 0


@given(
    capacity=st.integers(0, 2000).map(lambda step: step * 50),
    claims=claims_of,
    units=st.lists(st.integers(1, 80), min_size=8),
)
def test_whole_shares_are_within_one_workload_of_the_exact_ones(
    capacity: int, claims: list[ProjectDemand], units: list[int]
) -> None:
    claims = [replace(each, unit_milli=unit * 50) for each, unit in zip(claims, units, strict=False)]
    exact = fair_shares(capacity, claims)
    whole = in_whole_workloads(exact, claims)
    assert sum(whole.values()) == sum(exact.values())
    for each in claims:
        share, name = whole[each.project.name], each.project.name
        assert share >= each.guaranteed
        assert abs(share - exact[name]) < each.unit_milli
        assert share >= exact[name] - exact[name] % each.unit_milli or share == each.guaranteed
