"""Large sites: what is made of one takes a share of work for each node, and not for each pair of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from appliance.site import inventory, ways
from appliance.site.model import Site
from appliance.site.site_file import load
from common.yaml_document import parse

OURS = str(Path(inventory.__file__).parent)
ENGINES = {"direct": "gpus: {count: 8}", "slurm": "gpus: {count: 8}, slurm: {cores: 8, memory_mib: 65536}"}


def site(workers: int, engine: str) -> Site:
    lines = [
        f"  - {{name: w{n}, address: 10.1.0.{n}, roles: [worker], agent_port: 6001, {ENGINES[engine]}}}"
        for n in range(1, workers + 1)
    ]
    first = "  - {name: first, address: 10.0.0.1, roles: [reservoir, master]}"
    return load(parse("\n".join(["name: north", f"engine: {engine}", "nodes:", first, *lines]), "site.yml"))


def calls(act: Callable[[], object]) -> int:
    """Return how many functions of the site's modules are called."""
    count = 0

    def hear(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(OURS)

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [lambda of: inventory.build(of, version="1"), ways.questions])
def test_twice_the_workers_are_twice_the_work_at_most(make: Callable[[Site], object], engine: str) -> None:
    small, large = site(20, engine), site(40, engine)
    assert 0 < calls(lambda: make(large)) <= 2 * calls(lambda: make(small))
