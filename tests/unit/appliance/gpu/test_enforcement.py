"""The choice among the kinds of enforcement, and what each kind gives to a container."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.gpu import enforcement
from appliance.gpu.cgroups import container_in, container_of, folder_of, is_unified
from appliance.gpu.devices import DeviceShare, Needs
from appliance.gpu.driver import Driver
from appliance.gpu.enforcement import AccountedOnly, Choice, Probe
from appliance.gpu.layout import Limit, Total
from appliance.gpu.mps import Mps
from appliance.gpu.preload import Preload
from appliance.gpu.telemetry import Telemetry
from appliance.gpu.timetable import Window
from common.errors import InputError, PenstockError, UnavailableError
from common.gpu.kinds import Compute, Enforcement
from common.protocol import GpuDevice
from tests.unit.appliance.gpu.samples import GPU, QUARTER, SECOND, SLICE, WHOLE

ORDER = tuple(Enforcement)
CONTAINER = "0123456789abcdef" * 4
INNER = "fedcba9876543210" * 4


class Found(AccountedOnly):
    """A kind that is available or not, as a test says."""

    def __init__(self, kind: Enforcement, available: bool) -> None:
        super().__init__(kind)
        self.asked = 0
        self._available = available

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        self.asked += 1
        return Probe(self._available, f"{self.kind} is {'here' if self._available else 'not here'}")


def choose(order: Sequence[Enforcement], *available: Enforcement, able: Sequence[Enforcement] = ORDER) -> Choice:
    return enforcement.choose(order, {kind: Found(kind, kind in available) for kind in Enforcement}, [GPU], able)


def test_the_first_available_kind_of_the_order_is_chosen_and_the_others_say_why_not() -> None:
    choice = choose(ORDER, Enforcement.SHIM, Enforcement.NONE)
    assert choice.kind is Enforcement.SHIM
    assert choice.probes[Enforcement.DRIVER] == Probe(False, "driver is not here")
    assert choice.probes[Enforcement.MIG].reason == "these GPUs are not cut into MIG devices"
    # who comes later is not asked: asking may start a daemon
    assert Enforcement.MPS not in choice.probes


def test_the_order_is_the_administrators() -> None:
    everything = tuple(Enforcement)
    assert choose([Enforcement.MPS, Enforcement.DRIVER], *everything).kind is Enforcement.MPS
    assert choose([Enforcement.NONE], *everything).kind is Enforcement.NONE


def test_an_order_without_none_may_come_to_nothing() -> None:
    assert choose([Enforcement.DRIVER, Enforcement.SHIM], Enforcement.NONE).kind is None


def test_a_kind_that_cannot_hold_devices_of_an_accelerator_is_not_asked() -> None:
    choice = choose(ORDER, *ORDER, able=[Enforcement.NONE])
    assert choice.kind is Enforcement.NONE
    assert choice.probes[Enforcement.SHIM].reason == "not for accelerators of this kind"


def test_a_slice_of_the_hardware_is_always_whole() -> None:
    assert DeviceShare(SLICE, 100).is_whole
    assert DeviceShare(SLICE, 100).memory_mib == 2048
    assert not QUARTER.is_whole
    assert (QUARTER.memory_mib, WHOLE.memory_mib) == (2048, 8192)


def test_needs_of_several_parts_come_together() -> None:
    one, other = Needs(environment={"A": "1"}, nvidia=("GPU-1",)), Needs(environment={"B": "2"}, devices=("/dev/x",))
    assert Needs.together([one, other]) == Needs((), {"A": "1", "B": "2"}, ("/dev/x",), ("GPU-1",))


def nest(folder: Path, depth: int) -> None:
    """Make folders in each other, deeper than a path may be long."""
    at = os.open(folder, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("n" * 20, dir_fd=at)
        deeper = os.open("n" * 20, os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


@pytest.fixture
def preload(tmp_path: Path) -> Preload:
    (tmp_path / "libpenstock-gpu.so").touch()
    return Preload(tmp_path / "libpenstock-gpu.so", tmp_path / "gpu", Compute.FAIR)


def test_the_shim_is_available_where_its_library_is(preload: Preload, tmp_path: Path) -> None:
    assert preload.probe([GPU]).available
    absent = Preload(tmp_path / "nowhere.so", tmp_path, Compute.FAIR).probe([GPU])
    assert absent == Probe(False, f"there is no library {tmp_path}/nowhere.so")


def test_a_container_finds_library_limits_and_account_and_may_write_only_the_account(
    preload: Preload, tmp_path: Path
) -> None:
    preload.prepare("c1", [QUARTER, WHOLE])
    mounts = preload.needs("c1", [QUARTER, WHOLE]).mounts
    assert all(Path(mount.source).exists() for mount in mounts)
    assert {mount.target: mount.read_only for mount in mounts} == {
        str(tmp_path): True,
        str(tmp_path / "libpenstock-gpu.so"): True,
        "/etc/ld.so.preload": True,
        "/run/penstock": True,
        "/run/penstock/limits": True,
        "/run/penstock/account/account": False,
    }
    assert (tmp_path / "gpu/c1/account/account").is_file(), "a folder could be filled"
    assert (tmp_path / "gpu/c1/ld.so.preload").read_text() == f"{tmp_path}/libpenstock-gpu.so\n"
    assert preload.limits("c1").limits() == [
        Limit("GPU-1", 2048 << 20, 250, Compute.FAIR),
        Limit("GPU-2", 0, 1000, Compute.OFF),
    ]
    assert preload.totals("c1") == {"GPU-1": Total(), "GPU-2": Total()}


def test_limits_of_a_container_that_runs_change_in_place_and_are_known_to_the_next_agent(
    preload: Preload, tmp_path: Path
) -> None:
    preload.prepare("c1", [QUARTER])
    inode = (tmp_path / "gpu/c1/limits/limits").stat().st_ino
    again = Preload(tmp_path / "libpenstock-gpu.so", tmp_path / "gpu", Compute.FAIR)
    again.apply("c1", [DeviceShare(GPU, 500)], 1)
    assert preload.limits("c1").limits() == [Limit("GPU-1", 4096 << 20, 500, Compute.FAIR)]
    assert (tmp_path / "gpu/c1/limits/limits").stat().st_ino == inode
    # asked for once more before it was started, nothing of it is made anew
    again.prepare("c1", [QUARTER])
    assert again.limits("c1").limits()[0].milli == 500


def test_an_account_is_made_in_a_file_system_of_its_own(tmp_path: Path) -> None:
    quotas: list[tuple[Path, bool]] = []
    preload = Preload(
        tmp_path / "lib.so",
        tmp_path / "gpu",
        Compute.FAIR,
        mount_quota=lambda folder: quotas.append((folder, (folder / "account").exists())),
    )
    preload.prepare("c1", [QUARTER])
    preload.prepare("c1", [QUARTER])
    assert quotas == [(tmp_path / "gpu/c1/account", False)]


def test_a_container_that_goes_while_others_look_at_it_is_gone_for_good(preload: Preload, tmp_path: Path) -> None:
    """Threads that plan and sample meet the removal at any point: they find limits that hold, or are told."""
    wrong: list[BaseException] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            try:
                preload.limits("c1").schedule({"GPU-1": Window(1, 0, 5, 0, 5)}, 0)
                preload.totals("c1")
            except UnavailableError:
                pass
            except BaseException as error:
                wrong.append(error)
                raise

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    for _ in range(50):
        preload.prepare("c1", [QUARTER])
        preload.remove("c1")
        assert not preload.has("c1")
    ended.set()
    for looker in lookers:
        looker.join()
    assert wrong == []
    assert not (tmp_path / "gpu/c1").exists()


def test_nothing_is_left_of_a_container_that_has_gone(preload: Preload, tmp_path: Path) -> None:
    preload.prepare("c1", [QUARTER])
    nest(tmp_path / "gpu/c1/account", 1200)
    preload.remove("c1")
    preload.remove("c1")
    assert list((tmp_path / "gpu").iterdir()) == []
    with pytest.raises(UnavailableError):
        preload.limits("c1")


def test_under_the_drivers_limits_the_library_shares_the_time(preload: Preload, tmp_path: Path) -> None:
    driver = Driver(Telemetry(), preload)
    driver.prepare("c1", [QUARTER])
    assert driver.needs("c1", [QUARTER]) == preload.needs("c1", [QUARTER])
    assert preload.limits("c1").limits() == [Limit("GPU-1", 2048 << 20, 250, Compute.FAIR)]


def test_without_a_library_or_with_shared_time_off_the_driver_needs_nothing_in_the_container(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    for compute in (Compute.STRICT, Compute.OFF):
        driver = Driver(Telemetry(), Preload(library, tmp_path / "gpu", compute))
        driver.prepare("c1", [QUARTER])
        assert driver.needs("c1", [QUARTER]) == Needs()
        library.touch()


def mps(tmp_path: Path, compute: Compute = Compute.FAIR) -> Mps:
    return Mps(Telemetry(), tmp_path, compute)


def test_a_client_of_the_multi_process_service_has_its_pipes_and_its_limits(tmp_path: Path) -> None:
    needs = mps(tmp_path).needs("c1", [QUARTER])
    assert needs.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": f"{tmp_path}/GPU-1/pipe",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    assert [(mount.source, mount.target) for mount in needs.mounts] == [
        (f"{tmp_path}/GPU-1/pipe", f"{tmp_path}/GPU-1/pipe"),
        (f"{tmp_path}/GPU-1/shm", "/dev/shm"),
    ]
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in mps(tmp_path, Compute.OFF).needs("c1", [QUARTER]).environment
    assert mps(tmp_path).needs("c1", [DeviceShare(GPU, 5)]).environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "1"


def test_whole_gpus_need_no_service_and_a_part_goes_with_no_other_gpu(tmp_path: Path) -> None:
    assert mps(tmp_path).needs("c1", [WHOLE]) == Needs()
    mps(tmp_path).check([WHOLE, DeviceShare(GPU, 1000)])
    mps(tmp_path).check([QUARTER])
    with pytest.raises(InputError, match="one GPU only"):
        mps(tmp_path).check([WHOLE, QUARTER])


def test_clients_of_the_service_keep_the_limits_that_they_started_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot change while a session runs"):
        mps(tmp_path).check_change([QUARTER])


def test_without_the_program_there_is_no_service(tmp_path: Path) -> None:
    assert Mps(Telemetry(), tmp_path, Compute.FAIR, control=tmp_path / "control").probe([GPU]) == Probe(
        False, f"there is no program {tmp_path}/control"
    )


def test_daemons_that_nobody_needs_are_stopped_and_those_that_do_not_run_are_left(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def systemctl(verb: str, unit: str) -> bool:
        calls.append((verb, unit))
        return True

    (tmp_path / "GPU-1/pipe").mkdir(parents=True)
    (tmp_path / "GPU-1/pipe/control").touch()
    Mps(Telemetry(), tmp_path, Compute.FAIR, systemctl=systemctl).leave([GPU, SECOND])
    assert calls == [("stop", "penstock-mps@GPU-1.service")]


def test_daemons_are_systemds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def succeeds(command: list[str]) -> bool:
        commands.append(command)
        return True

    monkeypatch.setattr("appliance.gpu.mps.process.succeeds", succeeds)
    (tmp_path / "GPU-1/pipe").mkdir(parents=True)
    (tmp_path / "GPU-1/pipe/control").touch()
    mps(tmp_path).leave([GPU])
    assert commands == [["systemctl", "stop", "penstock-mps@GPU-1.service"]]


class Systemd:
    """Daemons as systemd has them: those that run, and what was asked of it."""

    def __init__(self, folder: Path, works: bool = True) -> None:
        self.folder, self.works = folder, works
        self.running: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, verb: str, unit: str) -> bool:
        self.asked.append(verb)
        if verb == "start" and self.works:
            pipe = self.folder / unit.removeprefix("penstock-mps@").removesuffix(".service") / "pipe"
            pipe.mkdir(parents=True, exist_ok=True)
            (pipe / "control").touch()
            self.running.add(unit)
        return unit in self.running


def test_a_daemon_that_was_killed_is_started_before_a_container_is_made(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path)
    service = Mps(Telemetry(), tmp_path, Compute.FAIR, control=Path("/bin/true"), systemctl=systemd)
    service.prepare("c1", [QUARTER])
    # the socket of one that was killed stays
    systemd.running.clear()
    assert [(check.id, check.subject, check.ok) for check in service.daemons()] == [("gpu.mps", "GPU-1", False)]
    service.prepare("c2", [QUARTER])
    assert [check.ok for check in service.daemons()] == [True]
    service.prepare("c3", [QUARTER, WHOLE])
    assert systemd.asked.count("start") == 2
    service.leave([GPU])
    assert service.daemons() == []


def test_a_daemon_that_runs_and_does_not_answer_is_told(tmp_path: Path) -> None:
    service = Mps(Telemetry(), tmp_path, Compute.FAIR, control=Path("/bin/false"), systemctl=Systemd(tmp_path))
    service.prepare("c1", [QUARTER])
    assert [check.evidence for check in service.daemons()] == ["penstock-mps@GPU-1.service does not answer"]


ANSWERS = {
    "no number": "printf '\\302\\262 x -1\\n'",
    "without an end": "exec yes 1",
    "a hundred thousand servers, each slowly": "sleep 0.3; seq 100000",
    "nothing for ever": "exec sleep 1000",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_whatever_a_session_answers_in_the_place_of_the_daemon_the_agent_is_done_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("appliance.gpu.mps._ANSWER_S", 1)
    control = tmp_path / "control"
    control.write_text(f"#!/bin/sh\n{answer}\n")
    control.chmod(0o755)
    service = Mps(
        Telemetry(), tmp_path, Compute.FAIR, control=control, container_of=lambda pid: None, systemctl=Systemd(tmp_path)
    )
    service.prepare("c1", [QUARTER])
    begun = time.monotonic()
    service.daemons()
    with contextlib.suppress(PenstockError):
        service.detach([QUARTER], "engine-id")
    assert time.monotonic() - begun < 30


def test_without_its_daemon_no_container_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.gpu.mps._START_S", 0)
    service = Mps(Telemetry(), tmp_path, Compute.FAIR, systemctl=Systemd(tmp_path, works=False))
    with pytest.raises(UnavailableError, match="the multi-process service of GPU GPU-1 does not run"):
        service.prepare("c1", [QUARTER])
    service.prepare("c2", [WHOLE])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"12:memory:/docker/{CONTAINER}\n11:cpu:/docker/{CONTAINER}\n0::/system.slice\n", CONTAINER),
        (f"0::/system.slice/docker-{CONTAINER}.scope\n", CONTAINER),
        (f"0::/system.slice/docker-{CONTAINER}.scope/payload\n", CONTAINER),
        (f"4:memory:/docker/{CONTAINER}/docker/{INNER}\n1:name=systemd:/docker/{CONTAINER}\n", INNER),
        ("0::/user.slice/user-0.slice\n", None),
        (f"0::/kubepods/{CONTAINER}0\n", None),
        ("", None),
    ],
    ids=["v1", "v2", "v2 with a group inside", "container in a container", "no container", "longer", "nothing"],
)
def test_the_container_of_a_process_stands_in_its_cgroup(text: str, found: str | None) -> None:
    assert container_in(text) == found


def test_an_ended_process_is_in_no_container(tmp_path: Path) -> None:
    assert container_of(4711, proc=tmp_path) is None
    with pytest.raises(UnavailableError, match="has ended"):
        folder_of(4711, proc=tmp_path)


def test_the_folder_of_a_group_is_below_the_root_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(f"0::/system.slice/docker-{CONTAINER}.scope\n")
    group = tmp_path / f"cgroup/system.slice/docker-{CONTAINER}.scope"
    assert folder_of(7, proc=tmp_path, root=tmp_path / "cgroup") == group
    (tmp_path / "7/cgroup").write_text(f"4:memory:/docker/{CONTAINER}\n")
    with pytest.raises(UnavailableError, match="no cgroup of its own"):
        folder_of(7, proc=tmp_path, root=tmp_path / "cgroup")
    assert not is_unified(tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    assert is_unified(tmp_path)
