"""What a node with simulated GPUs has; real ones are found in the integration tests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.agent.docker import node_info
from appliance.agent.settings import Settings
from appliance.gpu import accelerators, nvml
from common.protocol import NodeInfo

ENGINE = {"ServerVersion": "20.10.24", "OperatingSystem": "Debian GNU/Linux 12", "NCPU": 64, "MemTotal": 4 << 30}


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {
        "name": "worker1",
        "address": "10.0.0.2",
        "api_url": "https://master1:56789",
        "ca": Path("ca"),
        "cert": Path("cert"),
        "key": Path("key"),
        "allowed": ("master1",),
        "simulated_gpus": 4,
        "simulated_gpu_model": "Lab GPU",
        "simulated_gpu_memory_mib": 8192,
    }
    return Settings(**{**given, **changes})


def take(**changes: Any) -> NodeInfo:
    wanted = settings(**changes)
    return node_info.take(wanted, ENGINE, accelerators.discover(node_info.kinds(wanted)), (0, 2))


def test_simulated_gpus_are_marked_and_keep_their_ids() -> None:
    found = take()
    assert (found.cpu_milli, found.memory_mib, found.engine_version) == (2000, 3072, "20.10.24")
    assert found.enforcement == "none"
    assert [gpu.uuid for gpu in found.gpus] == [f"SIM-worker1-{index}" for index in range(4)]
    assert all(gpu.simulated and gpu.model == "Lab GPU" and gpu.memory_mib == 8192 for gpu in found.gpus)
    assert take().gpus == found.gpus
    assert (found.fractions, found.nvlink, found.driver_version, found.cuda_version) == (True, False, "", "")


@pytest.mark.parametrize(("reserve", "told"), [(0, 4096), (1024, 3072), (8192, 1)])
def test_a_part_of_the_memory_is_no_sessions(reserve: int, told: int) -> None:
    assert take(memory_reserve_mib=reserve).memory_mib == told


def test_where_a_node_stands_and_since_when_its_agent_runs() -> None:
    before = datetime.now(UTC)
    found = take(region="hall-2", switch="leaf7")
    assert (found.region, found.switch) == ("hall-2", "leaf7")
    assert found.started_at is not None
    assert before <= found.started_at <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("count", "islands", "expected"),
    [(4, 1, [0, 0, 0, 0]), (4, 2, [0, 0, 1, 1]), (5, 2, [0, 0, 0, 1, 1]), (2, 8, [0, 1])],
)
def test_simulated_gpus_form_islands_of_about_equal_size(count: int, islands: int, expected: list[int]) -> None:
    found = take(simulated_gpus=count, simulated_gpu_islands=islands)
    assert [gpu.island for gpu in found.gpus] == expected


@pytest.mark.parametrize(
    ("linked", "near", "expected"),
    [
        ([], [], [0, 1, 2, 3]),
        ([(0, 1), (1, 2), (2, 3)], [], [0, 0, 0, 0]),
        ([(1, 3)], [(0, 1), (0, 2), (1, 2)], [0, 1, 0, 1]),
        ([(0, 3), (1, 2)], [(0, 1), (2, 3)], [0, 1, 1, 0]),
    ],
    ids=["alone", "a chain of links", "a GPU with a link leaves those without", "links and not neighbours"],
)
def test_islands_follow_links(linked: list[tuple[int, int]], near: list[tuple[int, int]], expected: list[int]) -> None:
    assert nvml.islands(4, linked, near) == expected
