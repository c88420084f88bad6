"""What a container may use of its node: cores, processes, locked memory, shared memory, folders."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from common.protocol import ContainerSpec, ContainerStatus, Mount
from tests.integration.agent.calls import launch, log_of, put, states, wait_for
from tests.integration.agent.conftest import Agent

Make = Callable[..., ContainerSpec]
CORES = len(os.sched_getaffinity(0))
needs_two = pytest.mark.usefixtures("_two_cores")


@pytest.fixture
def _two_cores() -> None:
    assert CORES >= 2, "this test needs a machine with two cores"


def cpuset(engine: docker.DockerClient, spec: ContainerSpec) -> str:
    return str(engine.containers.get(f"penstock-{spec.id}").attrs["HostConfig"]["CpusetCpus"])


@needs_two
@pytest.mark.parametrize(("milli", "number"), [(2000, 2), (1500, 2), (1000, 1), (300, 1)])
def test_a_session_sees_as_many_cores_as_it_was_granted(agent: Agent, spec: Make, milli: int, number: int) -> None:
    wanted = spec(cpu_milli=milli, command=["sh", "-c"], args=["nproc; echo $OMP_NUM_THREADS"])
    with agent.client() as client:
        launch(client, wanted)
        assert log_of(client, wanted.id).split() == [str(number), str(number)]


@needs_two
@pytest.mark.parametrize(("milli", "number"), [(2000, 2), (1000, 1), (0, CORES)])
def test_the_c_library_and_readers_of_proc_count_the_same_cores(
    agent: Agent, spec: Make, milli: int, number: int
) -> None:
    folder = Path(agent.environment["PENSTOCK_AGENT_MOUNT_ROOTS"]) / "tools"
    folder.mkdir()
    source = Path(__file__).with_name("cores.c")
    subprocess.run(["gcc", "-static", "-Wall", "-Werror", "-o", folder / "cores", source], check=True)
    script = "/tools/cores; while read key rest; do case $key in processor) echo core;; esac; done < /proc/cpuinfo"
    mount = Mount(source=str(folder), target="/tools", read_only=True)
    wanted = spec(cpu_milli=milli, command=["sh", "-c"], args=[script], mounts=[mount])
    with agent.client() as client:
        launch(client, wanted)
        assert log_of(client, wanted.id).split() == [str(number), str(number), *["core"] * number]


def test_a_session_without_a_limit_sees_the_machine(agent: Agent, spec: Make) -> None:
    wanted = spec(command=["nproc"], args=[])
    with agent.client() as client:
        launch(client, wanted)
        assert log_of(client, wanted.id).split() == [str(CORES)]


@needs_two
def test_cores_are_spread_and_known_again_after_a_restart(
    agent: Agent, spec: Make, engine: docker.DockerClient
) -> None:
    first, second = spec(cpu_milli=1000), spec(cpu_milli=1000)
    with agent.client() as client:
        launch(client, first)
    agent.stop()
    agent.start()
    with agent.client() as client:
        launch(client, second)
        assert {cpuset(engine, first), cpuset(engine, second)} == {"0", "1"}
        client.delete(f"/v1/containers/{first.id}?grace_s=0").raise_for_status()
        third = spec(cpu_milli=1000)
        launch(client, third)
    assert cpuset(engine, third) == "0"


def test_more_cores_than_the_node_has_are_refused(agent: Agent, spec: Make) -> None:
    with agent.client() as client:
        refused = put(client, spec(cpu_milli=(CORES + 1) * 1000))
        assert states(client) == {}
    assert refused.status_code == 422
    [problem] = refused.json()["errors"]
    assert problem["pointer"] == "/cpu_milli"
    assert f"this node has {CORES}" in problem["detail"]


def test_a_fork_bomb_stays_within_its_session(agent: Agent, spec: Make) -> None:
    agent.stop()
    agent.environment["PENSTOCK_AGENT_PIDS_LIMIT"] = "64"
    agent.start()
    bomb = spec(command=["sh", "-c"], args=["for n in $(seq 200); do sleep 60 & done; echo survived"])
    with agent.client() as client:
        launch(client, bomb)
        state = wait_for(client, bomb.id, ContainerStatus.EXITED)
        assert state.exit_code != 0
        assert "can't fork" in log_of(client, bomb.id)
        launch(client, spec())


def lockable_kib() -> str:
    """What the shell of a container says: only a machine whose root has CAP_SYS_RESOURCE lets it lock all."""
    [mask] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line]
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if int(mask, 16) >> 24 & 1 or hard < 0 else str(hard >> 10)


def test_locked_memory_has_no_limit_and_shared_memory_has_its_size(agent: Agent, spec: Make) -> None:
    wanted = spec(shm_mib=128, command=["sh", "-c"], args=["ulimit -l; df -m /dev/shm"])
    with agent.client() as client:
        launch(client, wanted)
        lines = log_of(client, wanted.id).splitlines()
    assert lines[0] == lockable_kib()
    assert lines[-1].split()[1] == "128"


def test_a_missing_folder_is_made_for_its_group_and_no_link_leads_out(agent: Agent, spec: Make, tmp_path: Path) -> None:
    root = tmp_path / "volumes"
    (root / "team-a").mkdir()
    (root / "team-a/inside").symlink_to(root / "team-b")
    (root / "team-a/outside").symlink_to("/etc")
    with agent.client() as client:
        launch(client, spec(mounts=[{"source": str(root / "team-a/data/deep"), "target": "/data"}]))
        for folder in ("team-a/data", "team-a/data/deep"):
            assert (root / folder).stat().st_mode & 0o7777 == 0o770
        launch(client, spec(mounts=[{"source": str(root / "team-a/inside"), "target": "/data"}]))
        assert (root / "team-b").is_dir(), "a link within the volumes is followed"
        refused = put(client, spec(mounts=[{"source": str(root / "team-a/outside/new"), "target": "/data"}]))
    assert refused.status_code == 422
    assert not Path("/etc/new").exists()
