"""What programs of a container see: their share, and only their own processes; and what they may not set."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from common.gpu.kinds import Compute
from tests.fakes.cuda.build import declared
from tests.fakes.cuda.clients import GIB, MIB, WAYS, Tenant

Make = Callable[..., Tenant]
LIMIT = 3 * GIB

SMI = """
import json, pynvml as n
n.nvmlInit()
gpus = []
for index in range(n.nvmlDeviceGetCount()):
    gpu = n.nvmlDeviceGetHandleByIndex(index)
    plain, second = n.nvmlDeviceGetMemoryInfo(gpu), n.nvmlDeviceGetMemoryInfo(gpu, version=n.nvmlMemory_v2)
    processes = n.nvmlDeviceGetComputeRunningProcesses(gpu)
    gpus.append({
        "uuid": n.nvmlDeviceGetUUID(gpu),
        "memory": [plain.total, plain.used, plain.free],
        "second": [second.total, second.used, second.free],
        "processes": sorted((process.pid, process.usedGpuMemory) for process in processes),
    })
print(json.dumps(gpus))
"""
"""As nvidia-smi does: every GPU with its memory and its processes."""

SETTERS = """
import ctypes, json, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
gpu = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))
print(json.dumps({name: getattr(nvml, name)(gpu, 0, 0) for name in sys.argv[1:]}))
"""


def python(tenant: Tenant, program: str, *arguments: str) -> Any:
    """Run a Python program as the tenant; returns the JSON that it prints."""
    command = [sys.executable, "-c", program, *arguments]
    return json.loads(
        subprocess.run(command, env=tenant.environment, capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.parametrize("way", WAYS)
def test_programs_see_their_share_as_the_whole_memory(tenant: Make, way: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        assert client.must("total 0").told == (LIMIT,)
        assert client.must("info").told == (LIMIT, LIMIT)
        client.must(f"malloc 0 {GIB}")
        assert client.must("info").told == (2 * GIB, LIMIT)


def test_free_memory_is_never_more_than_the_gpu_has(tenant: Make) -> None:
    share, neighbour = tenant(12 * GIB), tenant(12 * GIB)
    with neighbour.ready() as other, share.ready() as client:
        other.must(f"malloc 0 {10 * GIB}")
        assert client.must("info").told == (6 * GIB, 12 * GIB)


@pytest.mark.parametrize("first_pid", ["0", "100000"], ids=["numbers of here", "numbers of another namespace"])
def test_nvidia_smi_shows_the_share_and_no_neighbours(tenant: Make, first_pid: str) -> None:
    settings = {"FAKE_GPU_PIDS_FROM": first_pid}
    share = tenant(LIMIT, 2 * GIB, gpus=2, settings=settings)
    neighbour = tenant(8 * GIB, 8 * GIB, gpus=2, settings=settings)
    with neighbour.ready() as other, share.ready() as client:
        other.must(f"malloc 0 {5 * GIB}")
        client.must(f"malloc 0 {GIB}")
        first, second = python(share, SMI)
    assert first["memory"] == first["second"] == [LIMIT, GIB, 2 * GIB]
    assert second["memory"] == second["second"] == [2 * GIB, 0, 2 * GIB]
    assert first["processes"] == [[client.process.pid, GIB]]
    assert second["processes"] == []


def test_nvml_setters_are_refused(tenant: Make) -> None:
    kinds = r"nvml(Device|Unit|System|GpuInstance|VgpuInstance)?(Set|Clear|Reset)[A-Z]"
    # a process may choose its own cores
    names = sorted(name for name in declared("nvml.h", "nvml") if re.match(kinds, name) and "CpuAffinity" not in name)
    assert {"nvmlDeviceSetComputeMode", "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceSetMigMode"} <= set(names)
    new = {"FAKE_GPU_DRIVER": "615.20"}
    assert python(tenant(LIMIT, settings=new), SETTERS, *names) == dict.fromkeys(names, 4), "NVML_ERROR_NO_PERMISSION"
    names.remove("nvmlDeviceSetMemoryLimits_v1")  # which wants more than zeros
    assert python(tenant(LIMIT, settings=new, preload=()), SETTERS, *names) == dict.fromkeys(names, 0)


def test_a_setter_that_nobody_knows_yet_is_refused_and_a_question_is_not(tenant: Make) -> None:
    new = {"FAKE_GPU_DRIVER": "615.20"}
    names = ("nvmlDeviceSetGreatNews_v1", "nvmlDeviceTurnGreatNews", "nvmlDeviceGetGreatNews", "nvmlGreatNewsQuery")
    assert python(tenant(LIMIT, settings=new), SETTERS, *names) == dict(zip(names, (4, 4, 0, 0), strict=True))
    assert python(tenant(LIMIT, settings=new, preload=()), SETTERS, *names) == dict.fromkeys(names, 0)


QUESTIONS = """
import json, pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
def ask(question):
    try:
        return question(gpu)
    except n.NVMLError as error:
        return -error.value
print(json.dumps([
    ask(lambda gpu: n.nvmlDeviceGetUtilizationRates(gpu).gpu),
    ask(lambda gpu: n.nvmlDeviceGetEncoderUtilization(gpu)[0]),
    ask(n.nvmlDeviceGetAccountingPids),
]))
"""


@pytest.mark.parametrize(("compute", "percent"), [(Compute.STRICT, 0), (Compute.OFF, -3)])
def test_no_neighbour_shows_in_what_nvml_tells_of_a_gpu(tenant: Make, compute: Compute, percent: int) -> None:
    share, neighbour = tenant(LIMIT, compute=compute), tenant(LIMIT, preload=())
    with neighbour.ready() as other:
        other.must("kernel 0 busy_9000ms", "launch 0 0")
        pids = [other.process.pid]
        assert python(neighbour, QUESTIONS)[2] == pids
        assert python(share, QUESTIONS) == [percent, -3, -3]


def test_the_use_that_nvml_tells_is_the_containers_own(tenant: Make) -> None:
    share = tenant(LIMIT, compute=Compute.STRICT)
    with share.ready() as client:
        client.must("kernel 0 busy_5ms")
        client.send("spin 0 1000 1 0")
        percent = python(share, QUESTIONS)[0]
        assert client.answer().code == 0
    assert 0 < percent <= 100


def test_without_limits_the_shim_changes_nothing(tenant: Make) -> None:
    share = tenant(LIMIT)
    (share.folder / "limits").unlink()
    with share.ready() as client:
        client.must(f"malloc 0 {16 * GIB}")
        assert client.must("total 0").told == (16 * GIB,)


def test_limits_without_an_account_stop_the_program_rather_than_the_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    (share.folder / "account").unlink()
    with share.client() as client:
        assert client.do("init").code == 304
        assert client.do("primary 0 0").code != 0


def test_a_changed_limit_holds_from_the_next_allocation(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(f"malloc 0 {2 * GIB}")
        [limit] = share.file.limits()
        share.file.change([type(limit)(limit.uuid, GIB, limit.milli, limit.compute)])
        assert client.must("info").told == (0, GIB)
        assert client.do("malloc 1 1").code == 2
        share.file.change([type(limit)(limit.uuid, 4 * GIB, limit.milli, limit.compute)])
        client.must(f"malloc 1 {2 * GIB}")
        assert client.do(f"malloc 2 {MIB}").code == 2
