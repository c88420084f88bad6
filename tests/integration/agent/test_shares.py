"""Shares of GPUs in real containers: the agent, Docker, the preload library, and a driver that is not NVIDIA's."""

from __future__ import annotations

import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest

from appliance.gpu import tmpfs_quota
from appliance.gpu.timetable import Window, current
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, NodeInfo
from tests import forks
from tests.fakes.cuda import Machine
from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, gpu_uuid
from tests.integration.agent import gpus
from tests.integration.agent.calls import launch, put, states, suspend, wait_for
from tests.integration.agent.conftest import BUSYBOX, Agent, FakeApi
from tests.integration.agent.gpus import Parts, gpu_share, program, smi

Make = Callable[..., ContainerSpec]


@pytest.fixture(scope="session")
def parts(library: Path, release: Path) -> Parts:
    return Parts(library, release)


@pytest.fixture(scope="session")
def gpu_image(engine: docker.DockerClient, parts: Parts) -> Iterator[str]:
    reference = f"penstock-test/gpu:{uuid.uuid4().hex[:12]}"
    gpus.make_image(engine, reference, parts, BUSYBOX)
    yield reference
    engine.images.remove(reference, force=True)


@pytest.fixture
def machine(node: Agent, parts: Parts, tmp_path: Path) -> Machine:
    """The two GPUs of the node, of 8 GiB each; the node is started."""
    machine = gpus.equip(node, parts, tmp_path)
    node.start()
    return machine


@pytest.fixture
def session(spec: Make, gpu_image: str) -> Make:
    """Make specs that run on the image with a C library."""
    return lambda *gpu_shares, **changes: spec(image=gpu_image, gpus=list(gpu_shares), **changes)


def resize(client: httpx.Client, identity: str, *gpu_shares: dict[str, object]) -> httpx.Response:
    return client.put(f"/v1/containers/{identity}/gpus", json={"gpus": list(gpu_shares)})


def folder_of(agent: Agent, identity: str) -> Path:
    return Path(agent.environment["PENSTOCK_AGENT_GPU_FOLDER"]) / identity


def wait_until(condition: Callable[[], Any], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_quarter_of_a_gpu_is_a_quarter_of_its_memory_and_no_more(
    node: Agent, machine: Machine, parts: Parts, session: Make, engine: docker.DockerClient
) -> None:
    wanted = session(gpu_share(250))
    with node.client() as client:
        node_info = NodeInfo.model_validate_json(client.get("/v1/node-info").content)
        assert [(gpu.memory_mib, gpu.enforcement, gpu.accelerator) for gpu in node_info.gpus] == [
            (8192, Enforcement.SHIM, "fake")
        ] * 2
        assert (node_info.enforcement, node_info.fractions) == (Enforcement.SHIM, True)
        state = launch(client, wanted)
    assert (state.status, state.enforcement, state.warning) == (ContainerStatus.RUNNING, Enforcement.SHIM, "")
    assert smi(parts, engine, wanted.id)[0] == (0, 2048, 0, 2048)
    with program(parts, wanted.id) as inside:
        inside.must("init", "primary 0 0")
        assert inside.must("info").told == (2048 * MIB, 2048 * MIB)
        inside.must(f"malloc 0 {1500 * MIB}")
        assert inside.do(f"malloc 1 {600 * MIB}").code == OUT_OF_MEMORY
        inside.must(f"malloc 1 {500 * MIB}")
        assert smi(parts, engine, wanted.id)[0] == (0, 2048, 2000, 48)
        assert machine.used(0) == 2000 * MIB


def test_neither_user_nor_image_switches_it_off(
    node: Agent, machine: Machine, parts: Parts, session: Make, engine: docker.DockerClient
) -> None:
    wanted = session(gpu_share(250), environment={"LD_PRELOAD": "", "PENSTOCK_TEST_LIMITS": "/nowhere"})
    with node.client() as client:
        launch(client, wanted)
    container = engine.containers.get(f"penstock-{wanted.id}")
    for attempt in ("echo > /etc/ld.so.preload", "echo > /run/penstock/limits/limits", f"echo > {parts.shim}"):
        said = container.exec_run(["sh", "-c", attempt])
        assert (said.exit_code, b"Read-only file system" in said.output) == (1, True), said
    # root of the container can put none of it out of sight
    for folder in ("/run/penstock", parts.shim.parent):
        said = container.exec_run(["mv", str(folder), "/elsewhere"])
        assert (said.exit_code, b"busy" in said.output) == (1, True), said
    # of the account there is one file, which cannot grow beyond its own small file system
    said = container.exec_run(
        ["sh", "-c", "echo > /run/penstock/account/more; cat /dev/zero >> /run/penstock/account/account"]
    )
    assert b"No space left" in said.output
    folder = folder_of(node, wanted.id) / "account"
    assert [file.name for file in folder.iterdir()] == ["account"]
    assert (folder / "account").stat().st_size <= tmpfs_quota.SIZE_KIB << 10
    # another user id than root is held alike
    with program(parts, wanted.id, user=4711) as inside:
        inside.must("init", "primary 0 0")
        assert inside.do(f"malloc 0 {2049 * MIB}").code == OUT_OF_MEMORY
        inside.must(f"malloc 0 {2000 * MIB}")


def test_a_volume_that_a_link_of_the_image_leads_over_the_limits_ends_the_session(
    node: Agent, machine: Machine, session: Make
) -> None:
    source = Path(node.environment["PENSTOCK_AGENT_MOUNT_ROOTS"]) / "data"
    wanted = session(gpu_share(250), mounts=[{"source": str(source), "target": gpus.TRAP}])
    with node.client() as client:
        assert put(client, wanted).status_code == 200
        ended = wait_for(client, wanted.id, ContainerStatus.FAILED)
    assert (
        "the session cannot be held to its GPU shares: something else is mounted at /run/penstock/limits" in ended.error
    )


def test_shares_change_while_programs_run_and_the_next_agent_knows(
    node: Agent, machine: Machine, parts: Parts, session: Make, engine: docker.DockerClient, fake_api: FakeApi
) -> None:
    wanted, neighbour = session(gpu_share(250)), session(gpu_share(250))
    with node.client() as client:
        launch(client, wanted)
        launch(client, neighbour)
        with program(parts, wanted.id) as inside:
            inside.must("init", "primary 0 0")
            assert inside.do(f"malloc 0 {3000 * MIB}").code == OUT_OF_MEMORY
            answer = resize(client, wanted.id, gpu_share(500))
            assert answer.status_code == 200, answer.text
            half = [GpuShare(gpu_uuid(0), 0, 500)]
            assert ContainerState.model_validate_json(answer.content).gpus == half
            fake_api.wait(lambda heartbeat: any(state.gpus == half for state in heartbeat.containers))
            assert inside.must("info").told == (4096 * MIB, 4096 * MIB)
            inside.must(f"malloc 0 {3000 * MIB}")
            node.stop()
            assert inside.must("info").told == (1096 * MIB, 4096 * MIB), "limits hold without an agent"
            node.start()
            assert states(client)[wanted.id].gpus == half
            assert resize(client, wanted.id, gpu_share(500)).status_code == 200, "asked for again, it is so already"
            # what is in use stays, and nothing more is given
            assert resize(client, wanted.id, gpu_share(125)).status_code == 200
            assert inside.do(f"malloc 1 {MIB}").code == OUT_OF_MEMORY
            inside.must("free 0", f"malloc 1 {1000 * MIB}")
        assert smi(parts, engine, neighbour.id)[0][1] == 2048


def test_what_a_gpu_has_no_room_for_is_refused_and_nothing_changes(
    node: Agent, machine: Machine, parts: Parts, session: Make
) -> None:
    wanted, neighbour = session(gpu_share(250)), session(gpu_share(500))
    with node.client() as client:
        launch(client, wanted)
        launch(client, neighbour)
        refused = resize(client, wanted.id, gpu_share(501))
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (409, "/gpus/0")
        assert resize(client, wanted.id, gpu_share(250, index=1)).status_code == 422
        assert resize(client, "nobody", gpu_share(250)).status_code == 404
        assert states(client)[wanted.id].gpus == [GpuShare(gpu_uuid(0), 0, 250)]
        assert gpus.limits(node, wanted.id).limits()[0].milli == 250
        assert put(client, session(gpu_share(251))).status_code == 409
        launch(client, session(gpu_share(250)))
        assert resize(client, wanted.id, gpu_share(251)).status_code == 409
        client.delete(f"/v1/containers/{neighbour.id}?grace_s=0").raise_for_status()
        assert resize(client, wanted.id, gpu_share(750)).status_code == 200
        assert not folder_of(node, neighbour.id).exists()


def test_folders_of_killed_containers_go_and_those_of_living_ones_stay(
    node: Agent, machine: Machine, parts: Parts, session: Make, engine: docker.DockerClient
) -> None:
    killed, missed, living = session(gpu_share(250)), session(gpu_share(250)), session(gpu_share(250))
    with node.client() as client:
        for each in (killed, missed, living):
            launch(client, each)
        engine.containers.get(f"penstock-{killed.id}").kill()
        wait_for(client, killed.id, ContainerStatus.EXITED)
        wait_until(lambda: not folder_of(node, killed.id).exists())
        node.stop()
        engine.containers.get(f"penstock-{missed.id}").remove(force=True)
        inode = (folder_of(node, living.id) / "limits/limits").stat().st_ino
        node.start()
    assert not folder_of(node, missed.id).exists()
    assert (folder_of(node, living.id) / "limits/limits").stat().st_ino == inode
    with program(parts, living.id) as inside:
        assert inside.must("init", "primary 0 0", "info").told == (2048 * MIB, 2048 * MIB)


def test_a_process_that_slips_past_the_limit_is_warned_of_and_its_session_ended(
    node: Agent, machine: Machine, session: Make, engine: docker.DockerClient, fake_api: FakeApi
) -> None:
    wanted, honest = session(gpu_share(250)), session(gpu_share(250))
    with node.client() as client:
        launch(client, wanted)
        launch(client, honest)
        for each, used in ((wanted, 2561), (honest, 2560)):
            pid = engine.containers.get(f"penstock-{each.id}").attrs["State"]["Pid"]
            machine.plant(pid, 0, used * MIB)
        reason = f"GPU memory over the limit: 2561 MiB of GPU {gpu_uuid(0)} are in use, and 2048 MiB are given"
        warned = fake_api.wait(lambda heartbeat: any(state.warning for state in heartbeat.containers))
        assert {state.id: state.warning for state in warned.containers} == {wanted.id: reason, honest.id: ""}
        ended = wait_for(client, wanted.id, ContainerStatus.FAILED)
        assert (ended.error, ended.warning) == (reason, "")
        assert states(client)[honest.id].status is ContainerStatus.RUNNING


def test_what_containers_use_is_told_and_kept_while_the_api_is_away(
    node: Agent, machine: Machine, parts: Parts, session: Make, fake_api: FakeApi
) -> None:
    wanted = session(gpu_share(500, index=1))
    with node.client() as client:
        launch(client, wanted)
        with program(parts, wanted.id) as inside:
            inside.must("init", "primary 0 1", f"malloc 0 {100 * MIB}", "kernel 0 busy_250us")
            fake_api.status = 503
            before = len(fake_api.samples)
            inside.must("spin 0 1500 4")
            fake_api.status = 200
            wait_until(lambda: len(fake_api.samples) >= before + 3)
    samples = [sample for sample in fake_api.samples if sample.memory_mib]
    assert {(sample.container_id, sample.uuid) for sample in samples} == {(wanted.id, gpu_uuid(1))}
    assert {(sample.memory_mib, sample.processes) for sample in samples} == {(100, 1)}
    assert max(sample.busy_permille or 0 for sample in samples) > 300


def test_sharers_of_a_gpu_have_windows_that_follow_their_shares(
    node: Agent, parts: Parts, session: Make, tmp_path: Path
) -> None:
    gpus.equip(node, parts, tmp_path)
    node.environment["PENSTOCK_AGENT_GPU_COMPUTE"] = "strict"
    node.start()
    one, other, whole = session(gpu_share(250)), session(gpu_share(500)), session(gpu_share(1000, index=1))

    def lengths(identity: str, index: int = 0) -> set[int]:
        windows = gpus.limits(node, identity).windows(gpu_uuid(index))
        return {window.length_ns // 1_000_000 for window in windows}

    with node.client() as client:
        for each in (one, other, whole):
            launch(client, each)
        wait_until(lambda: 50 in lengths(one.id) and 100 in lengths(other.id))
        resize(client, one.id, gpu_share(125)).raise_for_status()
        wait_until(lambda: 25 in lengths(one.id))
        assert lengths(whole.id, 1) == {0}, "nobody shares its time"
    # a plan in which one was idle, and an agent that does not live to give it a window
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    now = time.monotonic_ns()
    idle = Window(now, 0, 200_000_000, 0, 0)
    gpus.limits(node, one.id).schedule({gpu_uuid(0): idle}, now)
    assert current(gpus.limits(node, one.id).windows(gpu_uuid(0)), time.monotonic_ns()).length_ns == 0
    forks.run([sys.executable, "-m", "appliance.agent", "own-windows"], node.environment, check=True)
    later = time.monotonic_ns() + 300_000_000
    assert current(gpus.limits(node, one.id).windows(gpu_uuid(0)), later).length_ns == 25_000_000


def test_an_agent_that_hangs_gives_no_sign_of_life_and_who_was_idle_has_its_window(
    node: Agent, parts: Parts, session: Make, tmp_path: Path
) -> None:
    gpus.equip(node, parts, tmp_path)
    node.environment |= {"PENSTOCK_AGENT_GPU_COMPUTE": "fair"}
    one, other = session(gpu_share(250)), session(gpu_share(250))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        node.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        node.start()
        assert systemd.recv(100) == b"WATCHDOG_USEC=300000000", "before it looks for its cards and for Docker"
        with node.client() as client:
            launch(client, one)
            launch(client, other)

        def window(identity: str, now_ns: int) -> Window:
            file = gpus.limits(node, identity)
            return current([*file.windows(gpu_uuid(0)), file.fallback(gpu_uuid(0))], now_ns)

        with program(parts, one.id) as inside:
            inside.must("init", "primary 0 0", "kernel 0 busy_250us")

            def given() -> list[int]:
                inside.must("spin 0 1500 4")
                return [window(each.id, time.monotonic_ns()).length_ns for each in (one, other)]

            wait_until(lambda: given() == [200_000_000] * 2)
        assert systemd.recv(100) == b"WATCHDOG_USEC=1000000\nWATCHDOG=1"
        assert node.process is not None
        suspend(node.process.pid)
        try:
            systemd.setblocking(False)
            with suppress(BlockingIOError):
                while systemd.recv(100):
                    pass
            with program(parts, other.id) as inside:
                inside.must("init", "primary 0 0", "kernel 0 busy_250us", "spin 0 5000 4")
            now = time.monotonic_ns()
            assert [window(each.id, now).length_ns for each in (one, other)] == [100_000_000] * 2
            with pytest.raises(BlockingIOError):
                systemd.recv(100)
        finally:
            node.process.send_signal(signal.SIGCONT)
        systemd.settimeout(60)
        assert systemd.recv(100) == b"WATCHDOG_USEC=1000000\nWATCHDOG=1"
        wait_until(lambda: max(window(each.id, time.monotonic_ns()).length_ns for each in (one, other)) > 100_000_000)


def test_two_and_a_half_gpus_are_two_whole_ones_and_a_half(
    node: Agent, parts: Parts, session: Make, tmp_path: Path, engine: docker.DockerClient
) -> None:
    gpus.equip(node, parts, tmp_path, gpus=3)
    node.start()
    wanted = session(gpu_share(1000), gpu_share(1000, index=1), gpu_share(500, index=2))
    with node.client() as client:
        launch(client, wanted)
    assert [row[1] for row in smi(parts, engine, wanted.id)] == [8192, 8192, 4096]


def test_another_kind_waits_for_the_last_session_of_the_old_one(
    node: Agent, parts: Parts, session: Make, tmp_path: Path, fake_api: FakeApi
) -> None:
    gpus.equip(node, parts, tmp_path)
    node.environment["PENSTOCK_AGENT_ENFORCEMENT"] = "none"
    node.start()
    old = session(gpu_share(250))
    with node.client() as client:
        assert launch(client, old).enforcement is Enforcement.NONE
        node.stop()
        node.environment["PENSTOCK_AGENT_ENFORCEMENT"] = "shim none"
        node.start()
        waits = NodeInfo.model_validate_json(client.get("/v1/node-info").content)
        assert waits.enforcement is Enforcement.NONE
        assert waits.enforcement_pending == "shim follows none when the last session that none holds has gone"
        assert states(client)[old.id].enforcement is Enforcement.NONE
        told = len(fake_api.heartbeats)
        client.delete(f"/v1/containers/{old.id}?grace_s=0").raise_for_status()
        wait_until(lambda: any(h.node_info.enforcement is Enforcement.SHIM for h in fake_api.heartbeats[told:]))
        assert launch(client, session(gpu_share(250))).enforcement is Enforcement.SHIM


def test_a_static_program_starts_with_the_library_preloaded(node: Agent, machine: Machine, session: Make) -> None:
    wanted = session(gpu_share(250), command=["sh", "-c"], args=["cat /etc/ld.so.preload"])
    with node.client() as client:
        launch(client, wanted)
        assert wait_for(client, wanted.id, ContainerStatus.EXITED).exit_code == 0
        assert client.get(f"/v1/containers/{wanted.id}/logs").text.strip().endswith("libpenstock-gpu.so")
