"""Discovery of GPUs by NVML, against a library that behaves like NVIDIA's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from pydantic import TypeAdapter

from appliance.gpu import driver_files
from appliance.gpu.devices import Gpus
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, NodeInfo
from tests import forks
from tests.integration.agent.conftest import Agent

DISCOVER = """
from pydantic import TypeAdapter
from appliance.gpu.devices import Gpus
from appliance.gpu.nvml import discover
print(TypeAdapter(Gpus).dump_json(discover()).decode())
"""


@pytest.fixture
def real_agent(node: Agent, library: Path, tmp_path: Path) -> Agent:
    """An agent, not started, whose NVML shows two GPUs, on a node with the program of NVIDIA's toolkit."""
    (tmp_path / driver_files.TOOLKIT).touch(mode=0o755)
    node.environment |= {
        "PATH": f"{node.environment['PATH']}:{tmp_path}",
        "PENSTOCK_AGENT_SIMULATED_GPUS": "0",
        "LD_LIBRARY_PATH": str(library),
        "FAKE_GPU_COUNT": "2",
    }
    return node


def discover(library: Path | None, **environment: str) -> subprocess.CompletedProcess[str]:
    found = {"LD_LIBRARY_PATH": str(library)} if library else {}
    return forks.run([sys.executable, "-c", DISCOVER], {"PATH": os.environ["PATH"], **found, **environment})


def found(library: Path, **environment: str) -> Gpus:
    result = discover(library, **environment)
    assert result.returncode == 0, result.stderr
    return TypeAdapter(Gpus).validate_json(result.stdout)


def test_gpus_are_found_with_their_index_id_model_and_memory(real_agent: Agent) -> None:
    real_agent.start()
    with real_agent.client() as client:
        node_info = NodeInfo.model_validate_json(client.get("/v1/node-info").content)
    assert [(gpu.index, gpu.uuid, gpu.model, gpu.memory_mib, gpu.simulated) for gpu in node_info.gpus] == [
        (index, f"GPU-00000000-0000-0000-0000-{index:012}", "NVIDIA Fake 16GB", 16384, False) for index in range(2)
    ]
    assert (node_info.driver_version, node_info.cuda_version, node_info.nvlink) == ("550.54.15", "12.4", False)


@pytest.mark.parametrize(
    ("machine", "islands", "nvlink"),
    [
        ({}, [0, 0, 0, 0], False),
        ({"FAKE_GPU_NUMA": "2"}, [0, 0, 1, 1], False),
        ({"FAKE_GPU_NVLINK": "4", "FAKE_GPU_NUMA": "2"}, [0, 0, 0, 0], True),
        ({"FAKE_GPU_NVLINK": "2"}, [0, 0, 1, 1], True),
        ({"FAKE_GPU_HIDDEN": "1", "FAKE_GPU_NVLINK": "4"}, [0, 1, 2, 3], False),
    ],
    ids=["one NUMA node", "two NUMA nodes", "NVLink across NUMA nodes", "NVLink in pairs", "nobody can tell"],
)
def test_islands_are_those_of_nvlink_and_else_the_numa_nodes(
    library: Path, machine: dict[str, str], islands: list[int], nvlink: bool
) -> None:
    node = found(library, FAKE_GPU_COUNT="4", **machine)
    assert [gpu.island for gpu in node.devices] == islands
    assert node.nvlink is nvlink


def test_each_gpu_knows_the_cores_of_its_numa_node(library: Path) -> None:
    node = found(library, FAKE_GPU_COUNT="4", FAKE_GPU_NUMA="2", FAKE_GPU_CORES="48")
    assert [sorted(node.near[gpu.uuid])[::47] for gpu in node.devices] == [[0, 47], [0, 47], [48, 95], [48, 95]]
    hidden = found(library, FAKE_GPU_COUNT="1", FAKE_GPU_HIDDEN="1")
    assert list(hidden.near.values()) == [frozenset()]


def test_sixteen_gpus_are_fine_and_seventeen_are_refused(library: Path, real_agent: Agent) -> None:
    assert len(found(library, FAKE_GPU_COUNT="16").devices) == 16
    result = subprocess.run(
        [sys.executable, "-m", "appliance.agent"],
        capture_output=True,
        text=True,
        env={**real_agent.environment, "FAKE_GPU_COUNT": "17"},
        timeout=30,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr == (
        "error: GPUs: this node has 17 GPUs; a node may have at most 16."
        " Hint: hide 1 of them from the driver, or split the machine into two nodes\n"
    )


def test_machine_without_a_driver_has_no_gpus(library: Path) -> None:
    without_library = discover(None)
    assert json.loads(without_library.stdout)["devices"] == [], without_library.stderr
    not_loaded = discover(library, FAKE_GPU_INIT="9", FAKE_GPU_COUNT="2")
    assert json.loads(not_loaded.stdout.splitlines()[-1])["devices"] == []
    assert "the driver is not loaded" in not_loaded.stdout + not_loaded.stderr


@pytest.mark.parametrize("trouble", [{"FAKE_GPU_LOST": "1"}, {"FAKE_GPU_INIT": "999"}])
def test_gpu_that_does_not_answer_is_an_error_and_not_a_smaller_node(library: Path, trouble: dict[str, str]) -> None:
    result = discover(library, FAKE_GPU_COUNT="2", **trouble)
    assert result.returncode != 0
    assert "UnavailableError: NVML" in result.stderr


def test_a_real_gpu_is_asked_of_docker_by_its_id(
    real_agent: Agent, spec: Callable[..., ContainerSpec], engine: docker.DockerClient
) -> None:
    uuid = "GPU-00000000-0000-0000-0000-000000000001"
    wanted = spec(gpus=[{"uuid": uuid, "index": 1, "milli": 500}])
    real_agent.start()
    with real_agent.client() as client:
        answer = client.put(f"/v1/containers/{wanted.id}", json=wanted.model_dump())
    state = ContainerState.model_validate_json(answer.content)
    # there is no such GPU behind Docker here, so the container cannot start, and that is said
    assert state.status is ContainerStatus.FAILED
    assert "gpu" in state.error.lower()
    attributes = engine.containers.get(f"penstock-{wanted.id}").attrs
    [request] = attributes["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == [uuid]
    assert request["Capabilities"] == [["gpu"]]
    assert "NVIDIA_VISIBLE_DEVICES=void" not in attributes["Config"]["Env"]
