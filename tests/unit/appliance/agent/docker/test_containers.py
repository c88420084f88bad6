"""From a spec to Docker's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.agent import labels
from appliance.agent.docker import containers, mount_checks
from appliance.agent.docker.cores import CoreGrant
from appliance.agent.storages import Storages
from appliance.gpu.devices import Needs
from common.errors import ConflictError, InputError
from common.gpu.kinds import Enforcement
from common.protocol import ContainerSpec, ContainerState, Mount
from tests.unit.appliance.agent.samples import DEVICES, gpu_share, make

REAL = Needs(nvidia=("GPU-real",), environment={"NVIDIA_VISIBLE_DEVICES": "GPU-real"})


def check(spec: ContainerSpec, *others: ContainerState, roots: tuple[Path, ...] = ()) -> None:
    mount_checks.check(spec, roots, Storages({}, {}))
    containers.check(spec, DEVICES, others)


def problem_of(spec: ContainerSpec, *others: ContainerState, roots: tuple[Path, ...] = ()) -> tuple[str, str]:
    with pytest.raises((InputError, ConflictError)) as caught:
        check(spec, *others, roots=roots)
    [problem] = caught.value.problems
    return problem.where, problem.reason


def test_the_log_of_a_container_is_as_large_as_the_site_says() -> None:
    limits = containers.ContainerLimits(log_mib=7, log_files=2)
    assert containers.creation(make(), limits=limits)["host_config"]["LogConfig"]["Config"] == {
        "max-size": "7m",
        "max-file": "2",
    }


def test_command_replaces_the_image_s_entrypoint_and_args_follow() -> None:
    own = containers.creation(make())
    assert (own["entrypoint"], own["command"]) == (None, None)
    given = containers.creation(make(command=["sleep"], args=["infinity"]))
    assert (given["entrypoint"], given["command"]) == (["sleep"], ["infinity"])


def test_every_label_of_ours_is_on_every_container_so_that_none_of_the_image_shows() -> None:
    ours = {value for name, value in vars(labels).items() if name.startswith("LABEL_")}
    assert containers.creation(make())["labels"].keys() == ours


def test_limits_and_hardening() -> None:
    spec = make(cpu_milli=1500, memory_mib=256, shm_mib=128)
    host = containers.creation(spec)["host_config"]
    assert host["NanoCpus"] == 1_500_000_000
    assert host["PidsLimit"] == 4096
    [memlock] = host["Ulimits"]
    assert (memlock["Name"], memlock["Soft"], memlock["Hard"]) == ("memlock", -1, -1)
    assert host["Memory"] == host["MemorySwap"] == 256 << 20
    assert host["ShmSize"] == 128 << 20
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Init"] is True
    assert not host.get("Privileged")
    assert host["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "3"}
    unlimited = containers.creation(make())["host_config"]
    assert not {"Memory", "MemorySwap", "NanoCpus", "DeviceRequests"} & {key for key, v in unlimited.items() if v}


def test_a_container_runs_on_its_cores_and_libraries_start_so_many_threads() -> None:
    spec = make(cpu_milli=2000, environment={"MKL_NUM_THREADS": "1"})
    created = containers.creation(spec, CoreGrant((1, 3), 2000))
    assert created["host_config"]["CpusetCpus"] == "1,3"
    assert not created["host_config"].get("NanoCpus"), "whole cores need no quota"
    assert created["environment"]["OMP_NUM_THREADS"] == created["environment"]["OPENBLAS_NUM_THREADS"] == "2"
    assert created["environment"]["MKL_NUM_THREADS"] == "1", "the user's word counts"
    assert not {"CpusetCpus", "NanoCpus"} & set(containers.creation(make())["host_config"])
    assert "OMP_NUM_THREADS" not in containers.creation(make())["environment"]


def test_simulated_gpus_are_told_by_environment_only() -> None:
    created = containers.creation(make(gpus=[gpu_share("SIM-1", 500)], environment={"A": "b"}))
    assert created["environment"] == {
        "A": "b",
        "PENSTOCK_SESSION": "train",
        "PENSTOCK_PROJECT": "team-a",
        "PENSTOCK_GPUS": "SIM-1",
        "PENSTOCK_GPU_SHARE": "500",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert not created["host_config"].get("DeviceRequests")


def test_gpus_by_the_files_of_the_driver_are_devices_and_mounts_of_any_docker() -> None:
    library = Mount(source="/usr/lib64/libcuda.so.535", target="/usr/lib64/libcuda.so.1", read_only=True)
    host = containers.creation(make(), needs=Needs((library,), {}, ("/dev/nvidia1",)))["host_config"]
    assert host["Devices"] == [
        {"PathOnHost": "/dev/nvidia1", "PathInContainer": "/dev/nvidia1", "CgroupPermissions": "rwm"}
    ]
    assert {"Target": library.target, "Source": library.source, "Type": "bind", "ReadOnly": True} in host["Mounts"]
    assert not host.get("DeviceRequests")


def test_real_gpus_are_asked_of_docker_by_id() -> None:
    created = containers.creation(make(gpus=[gpu_share("GPU-real", 1000), gpu_share("SIM-1", 500)]), needs=REAL)
    [request] = created["host_config"]["DeviceRequests"]
    assert request["DeviceIDs"] == ["GPU-real"]
    assert created["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-real"
    assert created["environment"]["PENSTOCK_GPU_SHARE"] == "1000,500"


def test_what_shares_need_is_mounted_and_stands_above_the_users_environment() -> None:
    library = Mount(source="/usr/lib/held.so", target="/usr/lib/held.so", read_only=True)
    needs = Needs(mounts=(library,), environment={"LIMIT": "1"}, devices=("/dev/fake0",))
    wanted = make(environment={"LIMIT": "9", "A": "b"}, mounts=[{"source": "/srv/data", "target": "/data"}])
    created = containers.creation(wanted, needs=needs, kind=Enforcement.SHIM)
    mounts = [(mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in created["host_config"]["Mounts"]]
    assert mounts == [("/srv/data", "/data", False), ("/usr/lib/held.so", "/usr/lib/held.so", True)]
    [device] = created["host_config"]["Devices"]
    assert (device["PathOnHost"], device["PathInContainer"]) == ("/dev/fake0", "/dev/fake0")
    assert (created["environment"]["LIMIT"], created["environment"]["A"]) == ("1", "b")


def test_who_asks_for_rdma_gets_the_hcas_and_may_choose_among_them() -> None:
    hcas = Needs(devices=("/dev/infiniband/uverbs0",), environment={"NCCL_IB_HCA": "=mlx5_0:1"})
    made = containers.creation(make(), rdma=hcas)
    (device,) = made["host_config"]["Devices"]
    assert (device["PathOnHost"], device["PathInContainer"]) == ("/dev/infiniband/uverbs0",) * 2
    assert made["environment"]["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert [limit["Hard"] for limit in made["host_config"]["Ulimits"]] == [-1]
    own = containers.creation(make(environment={"NCCL_IB_HCA": "mlx5_1"}), rdma=hcas)
    assert own["environment"]["NCCL_IB_HCA"] == "mlx5_1"


def test_a_session_cannot_give_itself_gpus_by_its_environment() -> None:
    wish = {"NVIDIA_VISIBLE_DEVICES": "all", "PENSTOCK_GPU_SHARE": "16000"}
    environment = containers.creation(make(environment=wish))["environment"]
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment["PENSTOCK_GPU_SHARE"] == ""
    given = make(environment=wish, gpus=[gpu_share("GPU-real", 500)])
    assert containers.creation(given, needs=REAL)["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-real"


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/proc",
        "/sys/fs",
        "/dev",
        "/data/../etc",
        "/run/penstock/limits",
        "/run",
        "/var/run/penstock/limits",
        "/etc/ld.so.preload",
        "/lib/penstock",
    ],
)
def test_targets_of_the_system_are_refused(tmp_path: Path, target: str) -> None:
    spec = make(mounts=[{"source": str(tmp_path), "target": target}])
    assert problem_of(spec, roots=(tmp_path,))[0] == "mounts.0.target"


def test_sources_lie_below_an_allowed_folder_whatever_links_say(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    check(make(mounts=[{"source": str(root / "data"), "target": "/development"}]), roots=(root,))
    for source in ("/etc", str(tmp_path / "rootless"), str(root / "out"), f"{root}/../x"):
        spec = make(mounts=[{"source": source, "target": "/data"}])
        reason = "what it mounts at /data is outside of the folders that may be mounted"
        assert problem_of(spec, roots=(root,)) == ("mounts.0.source", reason), source
    assert problem_of(make(mounts=[{"source": "/etc", "target": "/data"}]))[0] == "mounts.0.source"


@pytest.mark.parametrize("source", ["shared", ".", "link"])
def test_a_storage_is_not_mounted_as_a_whole_nor_what_lies_above_it(tmp_path: Path, source: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    storages = Storages({"shared": tmp_path / "shared"}, {"shared": "one"})
    mounts = [{"source": str(tmp_path / source), "target": "/data"}]
    with pytest.raises(InputError, match="what it mounts at /data is a storage as a whole"):
        mount_checks.check(make(mounts=mounts), [tmp_path], storages)
    within = [{"source": str(tmp_path / "shared/volume"), "target": "/data"}]
    mount_checks.check(make(mounts=within), [tmp_path], storages)


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    root = tmp_path / "shared"
    root.symlink_to(tmp_path / "disk")
    check(make(mounts=[{"source": str(root / "data"), "target": "/data"}]), roots=(root,))
