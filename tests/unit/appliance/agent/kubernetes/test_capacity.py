"""What a cluster has for sessions."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.agent.kubernetes.capacity import Amount, Machine, Occupant, asked_by, machine_of, measure

RESOURCE = "nvidia.com/gpu"


def node(**changes: Any) -> dict[str, Any]:
    found = {
        "metadata": {"name": "left", "labels": {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "16Gi", RESOURCE: "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"osImage": "Debian 12"},
        },
    }
    return found | changes


def machine(name: str, gpus: int = 2, *, is_open: bool = True) -> Machine:
    return Machine(name, is_open, Amount(4000, 16384, gpus))


def places(machines: list[Machine], *occupants: Occupant, limit: int = 128) -> list[str]:
    return [device.uuid for device in measure(machines, occupants, limit).devices]


def test_a_node_is_a_machine_with_what_pods_may_have_of_it() -> None:
    assert machine_of(node(), RESOURCE) == Machine("left", True, Amount(3920, 16384, 2), "A100", 40960, "Debian 12")


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        {"status": {}},
    ],
    ids=["cordoned", "tainted", "not-heard-of", "new"],
)
def test_some_nodes_take_no_pods(changes: dict[str, Any]) -> None:
    assert not machine_of(node(**changes), RESOURCE).open


@pytest.mark.parametrize(
    "taint",
    [{"key": RESOURCE, "effect": "NoSchedule"}, {"key": "slow", "effect": "PreferNoSchedule"}],
    ids=["only-for-gpus", "only-a-wish"],
)
def test_some_taints_do_not_keep_sessions_away(taint: dict[str, str]) -> None:
    assert machine_of(node(spec={"taints": [taint]}), RESOURCE).open


def test_a_pod_asks_for_its_containers_together_or_for_its_preparation() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec: dict[str, Any] = {"containers": [container("1"), container("500m")]}
    assert asked_by({"spec": spec}, RESOURCE).cpu_milli == 1500
    spec["initContainers"] = [container("4")]
    assert asked_by({"spec": spec}, RESOURCE).cpu_milli == 4000
    spec["initContainers"] = [container("1", restartPolicy="Always"), container("4")]
    assert asked_by({"spec": spec}, RESOURCE).cpu_milli == 5000
    spec["overhead"] = {"cpu": "100m"}
    assert asked_by({"spec": spec}, RESOURCE).cpu_milli == 5100


def test_a_limit_without_a_request_is_the_request() -> None:
    limits = {"resources": {"limits": {"memory": "1Gi", RESOURCE: "1"}}}
    assert asked_by({"spec": {"containers": [limits]}}, RESOURCE) == Amount(0, 1024, 1)


def test_the_machines_count_together_and_each_is_an_island() -> None:
    found = measure([machine("right"), machine("left")], [])
    assert (found.cpu_milli, found.memory_mib) == (8000, 32768)
    assert [(item.uuid, item.index, item.island) for item in found.devices] == [
        ("left/0", 0, 0),
        ("left/1", 1, 0),
        ("right/0", 2, 1),
        ("right/1", 3, 1),
    ]
    assert found.home["right/1"] == "right"


def test_what_others_hold_is_not_ours() -> None:
    found = measure([machine("left")], [Occupant("left", Amount(1500, 1024, 1))])
    assert (found.cpu_milli, found.memory_mib) == (2500, 15360)
    assert [device.uuid for device in found.devices] == ["left/0"]


def test_what_sessions_hold_stays_counted() -> None:
    """Otherwise it would be counted twice: Penstock takes it off what there is."""
    ours = Occupant("left", Amount(1000, 512, 1), ours=True, places=("left/1",))
    found = measure([machine("left")], [ours])
    assert (found.cpu_milli, len(found.devices)) == (4000, 2)
    theirs = Occupant("left", Amount(0, 0, 1))
    assert places([machine("left")], ours, theirs) == ["left/1"]


def test_a_place_that_a_session_holds_never_goes_away() -> None:
    ours = Occupant("left", Amount(1000, 512, 1), ours=True, places=("left/0",))
    closed = machine("left", is_open=False)
    assert places([closed], ours) == ["left/0"]
    found = measure([closed], [ours])
    assert (found.cpu_milli, found.memory_mib) == (1000, 512)
    greedy = Occupant("left", Amount(9000, 90000, 2))
    assert places([machine("left")], ours, greedy) == ["left/0"]
    assert measure([machine("left")], [ours, greedy]).cpu_milli == 1000


def test_of_more_gpus_than_a_node_may_have_the_last_free_ones_are_left_out() -> None:
    ours = Occupant("right", Amount(0, 0, 1), ours=True, places=("right/1",))
    found = measure([machine("left"), machine("right")], [ours], 3)
    assert [device.uuid for device in found.devices] == ["left/0", "left/1", "right/1"]
    assert found.left_out == 1


def test_a_place_of_a_machine_with_a_long_name_still_fits() -> None:
    name = "a" * 253
    assert len(machine(name).place(15)) < 128
    assert machine(name).place(0) != machine(name + "b").place(0)
