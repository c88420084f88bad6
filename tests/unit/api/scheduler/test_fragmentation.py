"""Which place leaves the most for others, by the work that is known."""

from __future__ import annotations

from api.scheduler.cluster import ClusterState
from api.scheduler.demand import Demand
from tests.unit.api.scheduler.lab import cluster, fill, node, where, work


def seen(whole: ClusterState, *items: tuple[int, int, int]) -> ClusterState:
    """Note work that waits: how often, its milli-GPU and its CPUs."""
    for times, milli, cpus in items:
        for _ in range(times):
            whole.observe(work(milli, cpu_milli=cpus * 1000))
    return whole


def test_light_work_leaves_the_cpus_to_the_heavy() -> None:
    """Both nodes have a GPU free; only one of them still has the CPUs that the usual work needs."""
    nodes = [node("few", 0, cpu_milli=4000), node("many", 0, cpu_milli=16000)]
    whole = seen(cluster(*nodes), (200, 1000, 12))
    assert where(whole.find(work(1000, cpu_milli=2000))) == ["few-0"]


def test_models_that_others_ask_for_are_left_to_them() -> None:
    nodes = [node("a", 0, models=["P100"]), node("b", 0, models=["T4"])]
    whole = cluster(*nodes)
    for _ in range(100):
        whole.observe(work(1000, gpu_models=("P100",)))
    assert where(whole.find(work(1000))) == ["b-0"]
    for _ in range(300):
        whole.observe(work(1000, gpu_models=("T4",)))
    assert where(whole.find(work(1000))) == ["a-0"]


def test_what_fills_a_gpu_with_the_usual_parts_goes_first() -> None:
    """With 0.6 the usual size, 0.4 belongs beside one of them, and not where 0.2 would be lost for ever."""
    whole = seen(cluster(node("a", 400), node("b", 600)), (200, 600, 0))
    assert where(whole.find(work(400))) == ["b-0:400"]


def test_whole_nodes_are_left_to_those_who_take_them() -> None:
    whole = seen(cluster(node("a", *[0] * 8), node("b", *[0] * 6, 1000, 1000)), (50, 8000, 0))
    assert where(whole.find(work(1000))) == ["b-0"]


def test_a_fraction_opens_no_gpu_while_a_shared_one_has_room() -> None:
    """Whatever was seen: 0.1 beside 0.85 spoils nothing that a user would understand."""
    for kind in ((300, 150, 0), (300, 1000, 4), (300, 8000, 64)):
        whole = seen(cluster(node("a", 0, 0, 850), node("b", 0)), kind)
        assert where(whole.find(work(100))) == ["a-2:100"]


def test_thousands_of_free_nodes_are_filled_one_after_the_other() -> None:
    whole = cluster(*(node(f"n{number:04}", 0, 0) for number in range(1000)))
    assert where(whole.find(work(2000))) == ["n0000-0 n0000-1"]
    for _ in range(3):
        places = whole.find(work(1000))
        assert places
        whole.allocate(places, work(1000))
    assert {name for name, used in zip(whole.names, whole.state.milli.sum(axis=1), strict=True) if used < 2000} == {
        "n0000",
        "n0001",
    }


def test_demand_depends_on_what_is_counted_not_on_the_way() -> None:
    layout = cluster(node("a", 0)).layout
    straight, detour = Demand(layout), Demand(layout)
    straight.count(work(500), 2)
    detour.count(work(300), 7)
    detour.count(work(500), 3)
    detour.count(work(300), -7)
    detour.count(work(500), -1)
    assert straight.typical.weight.tolist() == detour.typical.weight.tolist()
    assert straight.typical.need.tolist() == detour.typical.need.tolist()
    assert straight.typical.fractions == detour.typical.fractions


def test_a_trial_forgets_what_it_saw() -> None:
    whole = cluster(node("a", *[0] * 4))
    before = whole.demand.typical.weight.tolist()
    with whole.trial():
        whole.observe(work(500))
        fill(whole, work(1000))
        assert whole.demand.typical.weight.tolist() != before
    assert whole.demand.typical.weight.tolist() == before


def test_what_is_left_of_a_gpu_is_worth_what_will_fill_it() -> None:
    demand = Demand(cluster(node("cpu")).layout)
    for milli, times in ((600, 10), (300, 10)):
        demand.count(work(milli), times)
    waste = demand.typical.waste
    assert waste[200] == 200, "nothing asked for is so small"
    assert waste[400] == 102, "0.3 comes in every second container, and 0.1 stays"
    assert waste[900] == 4, "0.6 and 0.3, which takes two containers each"
    assert waste[0] == 0
