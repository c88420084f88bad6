"""GPUs of workers of which the site file says nothing: what a deploy accepts, and what it leaves to people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.site import expected_gpus, playbook
from appliance.site.model import Site
from appliance.site.preflight import MACHINE
from appliance.site.site_file import load
from common.yaml_document import parse

MODEL = "NVIDIA H100 80GB HBM3"


def site(said: str = "") -> Site:
    worker = f"{{name: w1, address: 10.0.0.3, roles: [worker], agent_port: 6001{said}}}"
    text = f"name: north\nnodes:\n  - {{name: m1, address: 10.0.0.2, roles: [reservoir, master]}}\n  - {worker}\n"
    return load(parse(text, "site.yml"))


def gpu(number: int, *, model: str = MODEL, parent: str = "", simulated: bool = False) -> dict[str, Any]:
    return {"uuid": f"GPU-{number}", "model": model, "parent": parent, "simulated": simulated}


class Master:
    """What the control API says of `w1` when it is asked."""

    def __init__(self, gpus: list[dict[str, Any]], state: str = "ready") -> None:
        self.nodes = [{"name": "w1", "state": state, "gpus": gpus}]
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def run(self, name: str, hosts: dict[str, Any], **options: Any) -> playbook.Result:
        self.asked.append((name, hosts["all"], options))
        result = playbook.Result(name, log=Path("log"))
        result.published = {"m1": {expected_gpus.FOUND: {"nodes": self.nodes, "error": ""}}}
        return result


def found(master: Master, cards: int = 2, said: str = "", reached: tuple[str, ...] = ("m1", "w1")) -> Any:
    told = {name: {MACHINE: {"gpus": cards}} for name in ("m1", "w1")}
    hosts: dict[str, Any] = {"all": {"vars": {}, "hosts": {}, "children": {}}}
    return expected_gpus.found(site(said), reached, told, hosts, master.run)


def test_as_many_as_the_machine_has_cards_are_expected_from_now_on() -> None:
    master = Master([gpu(0), gpu(1)])
    assert found(master) == {"w1": {"count": 2, "model": MODEL}}
    ((name, asked, options),) = master.asked
    assert (name, options["check"]) == ("attachment", True)
    assert asked["vars"]["nodes_joining"] == ["w1"]
    assert asked["children"]["attachment"] == {"hosts": {"m1": {}}}


def test_cards_of_several_models_have_none_that_all_of_them_have() -> None:
    assert found(Master([gpu(0), gpu(1, model="NVIDIA A100-SXM4-80GB")])) == {"w1": {"count": 2}}


def test_slices_count_as_the_gpu_that_they_are_cut_from() -> None:
    slices = [gpu(number, model="NVIDIA H100 MIG 3g.40gb", parent="GPU-0") for number in (7, 8)]
    assert found(Master([*slices, gpu(1)])) == {"w1": {"count": 2}}
    assert found(Master(slices), cards=1) == {"w1": {"count": 1}}


@pytest.mark.parametrize(
    ("gpus", "state"),
    [
        pytest.param([gpu(0)], "ready", id="one of two cards is missing"),
        pytest.param([], "ready", id="no driver is loaded"),
        pytest.param([gpu(0), gpu(1, simulated=True)], "ready", id="simulated ones"),
        pytest.param([gpu(0), gpu(1)], "unready", id="the agent is not well"),
    ],
)
def test_what_may_be_a_fault_is_not_taken_for_what_is_right(gpus: list[dict[str, Any]], state: str) -> None:
    assert found(Master(gpus, state)) == {}


@pytest.mark.parametrize(
    ("cards", "said", "reached"),
    [
        pytest.param(2, ", gpus: {count: 8}", ("m1", "w1"), id="the site file says it"),
        pytest.param(2, ", simulated_gpus: {count: 2}", ("m1", "w1"), id="the site file simulates them"),
        pytest.param(0, "", ("m1", "w1"), id="the machine has no cards"),
        pytest.param(2, "", ("m1",), id="the deploy left it out"),
    ],
)
def test_nobody_is_asked_where_there_is_nothing_to_write(cards: int, said: str, reached: tuple[str, ...]) -> None:
    master = Master([gpu(0), gpu(1)])
    assert found(master, cards, said, reached) == {}
    assert master.asked == []


def test_an_api_that_is_not_heard_leaves_it_to_the_next_deploy() -> None:
    master = Master([])
    master.nodes = []
    assert found(master) == {}
