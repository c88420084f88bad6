"""Kinds of enforcement that NVIDIA's software holds, and what NVML tells, against a library that behaves like it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from appliance.gpu import driver_files
from common.gpu.kinds import Enforcement
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, NodeInfo
from tests import forks
from tests.fakes import cuda
from tests.fakes.cuda import Limit, Machine
from tests.fakes.cuda.clients import MIB, gpu_uuid
from tests.integration.agent.calls import put
from tests.integration.agent.conftest import Agent

START = """
import json, os, sys
from pathlib import Path
from common.protocol import GpuDevice
from appliance.gpu.devices import DeviceShare
from appliance.gpu.driver import Driver
from common.gpu.kinds import Compute
from appliance.gpu.mps import Mps
from appliance.gpu.telemetry import Telemetry
from common.errors import PenstockError
folder, telemetry = Path(sys.argv[1]), Telemetry()
gpus = [GpuDevice(index=n, uuid=f"GPU-00000000-0000-0000-0000-{n:012}", model="", memory_mib=8192) for n in range(2)]
driver = Driver(telemetry, proc=folder / "proc", root=folder / "cgroup")
"""
ENGINE_ID = "0123456789abcdef" * 4
GROUP = f"system.slice/docker-{ENGINE_ID}.scope"


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A machine with cgroups of version 2, and process 7 in a container."""
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup/cgroup.controllers").touch()
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(f"0::/{GROUP}\n")
    return tmp_path


def ask(library: Path, folder: Path, program: str, **machine: str) -> Any:
    """Run a program with the fake NVML of two GPUs; returns the JSON that it prints last."""
    given = {"FAKE_GPU_COUNT": "2", "FAKE_GPU_MEMORY_MIB": "8192", "FAKE_GPU_STATE": str(folder / "state")}
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library), **given, **machine}
    result = forks.run([sys.executable, "-c", START + program, folder], environment, check=True)
    return json.loads(result.stdout.splitlines()[-1])


PROBE = "found = driver.probe(gpus); print(json.dumps([found.available, found.reason]))"


def test_a_new_driver_limits_memory_per_container(library: Path, unified: Path) -> None:
    assert ask(library, unified, PROBE, FAKE_GPU_DRIVER="615.43.02") == [
        True,
        "driver 615.43.02 limits memory per container",
    ]


def test_where_the_driver_cannot_it_says_why(
    library: Path, unified: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert ask(library, unified, PROBE, FAKE_GPU_DRIVER="580.95.05") == [False, "driver 580.95.05 is older than 615"]
    cut = ask(library, unified, PROBE, FAKE_GPU_DRIVER="615.43.02", FAKE_GPU_MIG="0:")
    assert (cut[0], "no memory limits for these GPUs" in cut[1]) == (False, True)
    (unified / "cgroup/cgroup.controllers").unlink()
    assert ask(library, unified, PROBE, FAKE_GPU_DRIVER="615.43.02") == [False, "the machine has no cgroup v2"]


def test_a_library_from_before_there_were_limits_is_no_trouble(
    unified: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = cuda.build(tmp_path_factory.mktemp("old"), old_driver=True)
    available, reason = ask(old, unified, PROBE, FAKE_GPU_DRIVER="615.43.02")
    assert (available, "Function Not Found" in reason) == (False, True)


def test_limits_are_set_for_the_containers_cgroup_and_follow_its_shares(library: Path, unified: Path) -> None:
    group = unified / "cgroup" / GROUP
    group.mkdir(parents=True)
    apply = "driver.apply('c1', [DeviceShare(gpus[0], {}), DeviceShare(gpus[1], 1000)], 7); print('null')"
    machine = Machine(library, unified / "state")
    for milli, limit_mib in ((250, 2048), (500, 4096), (125, 1024)):
        ask(library, unified, apply.format(milli), FAKE_GPU_DRIVER="615.43.02")
        assert machine.limit(0, group) == Limit(limit_mib * MIB, limit_mib * MIB, 0)
    whole = machine.limit(1, group)
    assert whole is None or whole.soft == 0, "a whole GPU has no limit"


@pytest.mark.parametrize(
    ("manager", "place"),
    [("systemd", f"system.slice/docker-{ENGINE_ID}.scope"), ("cgroupfs", f"docker/{ENGINE_ID}")],
)
def test_the_limit_stands_before_the_container_starts_and_its_group_goes_with_it(
    library: Path, unified: Path, manager: str, place: str
) -> None:
    start = f"driver = Driver(telemetry, None, {manager!r}, folder / 'proc', folder / 'cgroup')\n"
    fence = f"{start}driver.fence('c1', [DeviceShare(gpus[0], 250)], {ENGINE_ID!r})\n"
    ask(library, unified, f"{fence}print('null')", FAKE_GPU_DRIVER="615.43.02")
    group = unified / "cgroup" / place
    assert group.is_dir()
    assert Machine(library, unified / "state").limit(0, group) == Limit(2048 * MIB, 2048 * MIB, 0)
    ask(
        library, unified, f"{fence}driver.remove('c1'); driver.remove('c1'); print('null')", FAKE_GPU_DRIVER="615.43.02"
    )
    assert not group.exists()


def test_where_docker_makes_the_group_elsewhere_it_is_limited_there(library: Path, unified: Path) -> None:
    fence = f"driver.fence('c1', [DeviceShare(gpus[0], 250)], {'f' * 64!r})\n"
    (unified / "cgroup" / GROUP).mkdir(parents=True)
    ask(
        library,
        unified,
        f"{fence}driver.apply('c1', [DeviceShare(gpus[0], 250)], 7); print('null')",
        FAKE_GPU_DRIVER="615.43.02",
    )
    assert Machine(library, unified / "state").limit(0, unified / "cgroup" / GROUP) == Limit(2048 * MIB, 2048 * MIB, 0)
    assert not (unified / f"cgroup/system.slice/docker-{'f' * 64}.scope").exists()


def test_without_its_group_a_container_is_not_started(library: Path, unified: Path) -> None:
    (unified / "cgroup/system.slice").write_text("no folder")
    refused = f"""
try:
    driver.fence("c1", [DeviceShare(gpus[0], 250)], {ENGINE_ID!r})
except PenstockError as error:
    print(json.dumps(str(error)))
"""
    assert "the cgroup of the session cannot be made" in ask(library, unified, refused, FAKE_GPU_DRIVER="615.43.02")


def test_a_limit_that_the_driver_refuses_is_an_error_with_its_reason(library: Path, unified: Path) -> None:
    refused = """
try:
    driver.apply("c1", [DeviceShare(gpus[0], 250)], 7)
except PenstockError as error:
    print(json.dumps(str(error)))
"""
    said = ask(library, unified, refused, FAKE_GPU_DRIVER="550.54.15")
    assert "the driver does not take the memory limit of GPU GPU-" in said
    gone = refused.replace(", 7)", ", 8)")
    assert "process 8 has ended" in ask(library, unified, gone, FAKE_GPU_DRIVER="615.43.02")


MPS = """
def systemctl(verb, unit):
    if verb == "is-active":
        return (folder / "mps" / unit[13:-8] / "pipe" / "control").exists()
    calls.append([verb, unit])
    pipe = folder / "mps" / unit.removeprefix("penstock-mps@").removesuffix(".service") / "pipe"
    pipe.mkdir(parents=True, exist_ok=True)
    if works:
        (pipe / "control").touch()
    return True
calls, works = [], {works}
(folder / "control").touch(0o755)
found = Mps(telemetry, folder / "mps", Compute.FAIR, control=folder / "control", systemctl=systemctl).probe(gpus)
print(json.dumps([found.available, found.reason, calls]))
"""


def test_the_multi_process_service_is_started_for_each_gpu(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = [["start", f"penstock-mps@{gpu_uuid(index)}.service"] for index in range(2)]
    assert ask(library, tmp_path, MPS.replace("{works}", "True")) == [True, "each GPU has its daemon", units]
    assert ask(library, tmp_path, MPS.replace("{works}", "True"))[2] == [], "they run already"
    quick = "import appliance.gpu.mps\nappliance.gpu.mps._START_S = 0.1\n"
    for socket in (tmp_path / "mps").glob("*/pipe/control"):
        socket.unlink()
    available, reason, calls = ask(library, tmp_path, quick + MPS.replace("{works}", "False"))
    assert (available, calls) == (False, units[:1])
    assert reason == f"the daemon {units[0][1]} does not start; see its journal"


def test_gpus_before_volta_have_no_limits_per_client(library: Path, tmp_path: Path) -> None:
    available, reason, calls = ask(library, tmp_path, MPS.replace("{works}", "True"), FAKE_GPU_CAPABILITY="6.1")
    assert (available, reason) == (False, f"GPU {gpu_uuid(0)} is older than Volta (compute capability 6.1)")
    assert calls == []


def test_a_gpu_that_has_vanished_is_why_there_is_no_service(library: Path, tmp_path: Path) -> None:
    available, reason, calls = ask(library, tmp_path, MPS.replace("{works}", "True"), FAKE_GPU_LOST="1")
    assert (available, reason) == (False, "NVML does not tell how old the GPUs are: GPU is lost")
    assert calls == []


def test_slices_of_a_gpu_that_has_vanished_are_not_left_away_in_silence(library: Path, tmp_path: Path) -> None:
    discover = """
from appliance.gpu import nvml
try:
    found = [device.uuid for device in nvml.discover().devices]
except PenstockError as error:
    found = str(error)
print(json.dumps(found))
"""
    cut = {"FAKE_GPU_MIG": "0:1g.10gb*2", "FAKE_GPU_MEMORY_MIB": "81920"}
    assert len(ask(library, tmp_path, discover, **cut)) == 3
    assert "NVML fails: GPU is lost" in ask(library, tmp_path, discover, **cut, FAKE_GPU_LOST="0")


def test_memory_and_busy_time_of_processes_are_told_with_their_ids(library: Path, tmp_path: Path) -> None:
    (tmp_path / "processes").write_text("0 4711 1048576 30\n0 4712 2097152 0\n1 4711 5 0\n")
    told = ask(
        library,
        tmp_path,
        "told = [telemetry.memory(gpus[0].uuid), telemetry.busy(gpus[0].uuid, 0), telemetry.memory('GPU-x')]\n"
        "print(json.dumps(told))",
        FAKE_GPU_PROCESSES=str(tmp_path / "processes"),
    )
    assert told[0] == {"4711": 1048576, "4712": 2097152}
    assert told[1]["4711"] == 300
    assert told[2] is None


@pytest.fixture
def cut_node(node: Agent, library: Path, tmp_path: Path) -> Agent:
    """An agent, not started, of three GPUs: one is cut into three slices, one into none yet, and one is whole."""
    (tmp_path / driver_files.TOOLKIT).touch(mode=0o755)
    node.environment |= {
        "PATH": f"{node.environment['PATH']}:{tmp_path}",
        "PENSTOCK_AGENT_SIMULATED_GPUS": "0",
        "LD_LIBRARY_PATH": str(library),
        "FAKE_GPU_COUNT": "3",
        "FAKE_GPU_MEMORY_MIB": "81920",
        "FAKE_GPU_MODEL": "NVIDIA Fake 80GB",
        "FAKE_GPU_MIG": "0:1g.10gb*2+3g.40gb,1:",
    }
    return node


def test_slices_are_devices_and_what_is_cut_is_not_offered_itself(
    cut_node: Agent, spec: Callable[..., ContainerSpec], engine: docker.DockerClient
) -> None:
    cut_node.start()
    with cut_node.client() as client:
        node_info = NodeInfo.model_validate_json(client.get("/v1/node-info").content)
        whole, *slices = node_info.gpus
        assert (whole.index, whole.uuid, whole.parent, whole.enforcement) == (2, gpu_uuid(2), "", Enforcement.NONE)
        assert [(device.index, device.profile) for device in slices] == [(3, "1g.10gb"), (4, "1g.10gb"), (5, "3g.40gb")]
        assert len({device.uuid for device in node_info.gpus}) == 4
        for device in slices:
            assert device.uuid.startswith("MIG-")
            assert (device.parent, device.model, device.enforcement) == (gpu_uuid(0), "NVIDIA Fake 80GB", "mig")
            assert device.capacity_milli == device.memory_mib * 1000 // 81920
        assert sum(device.capacity_milli for device in slices) <= 1000
        # there is no NVIDIA runtime here, so Docker cannot start it; what it was asked for is right
        wanted = spec(gpus=[{"uuid": slices[0].uuid, "index": 3, "milli": 100}])
        state = ContainerState.model_validate_json(put(client, wanted).content)
    assert (state.status, state.enforcement) == (ContainerStatus.FAILED, Enforcement.MIG)
    attributes = engine.containers.get(f"penstock-{wanted.id}").attrs
    [request] = attributes["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == [slices[0].uuid]
    assert attributes["Config"]["Labels"]["io.penstock.enforcement"] == "mig"
