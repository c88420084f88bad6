"""Faults of what other kinds of enforcement stand on, with a daemon and programs that really end: MPS, and MIG."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from appliance.gpu.devices import DeviceShare
from appliance.gpu.mps import Mps
from appliance.gpu.telemetry import Telemetry
from common.errors import UnavailableError
from common.gpu.kinds import Compute
from common.protocol import GpuDevice
from tests.fakes.cuda import mps_control
from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Bench, Client, gpu_uuid
from tests.fakes.cuda.machine import Machine

ILLEGAL_ADDRESS, ENDING, SERVER_GONE, NOT_READY, TERMINATED, UNKNOWN = 700, 805, 806, 807, 810, 999
GPU = GpuDevice(index=0, uuid=gpu_uuid(0), model="", memory_mib=256)
QUARTER = DeviceShare(GPU, 250)


class Nvml(Telemetry):
    """What NVML tells of the processes on a machine's GPU, and that only."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def memory(self, uuid: str) -> dict[int, int]:
        """The bytes that each process has."""
        return {use.pid: use.bytes for use in self.machine.uses()}


@dataclass
class Service:
    """A node with one GPU that MPS holds, and its daemon as systemd would run it."""

    bench: Bench
    folder: Path
    machine: Machine
    options: Sequence[str] = ("-f", "-M")
    daemon: subprocess.Popen[bytes] | None = None
    broken: bool = False

    def __post_init__(self) -> None:
        self.control = mps_control.install(self.folder / "bin")
        self.containers: dict[int, str] = {}
        self.mps = Mps(
            Nvml(self.machine),
            self.folder,
            Compute.STRICT,
            self.control,
            container_of=self.containers.get,
            systemctl=self.systemctl,
        )
        self.pipe = self.folder / GPU.uuid / "pipe"

    def systemctl(self, verb: str, unit: str) -> bool:
        """Do what systemd does with the unit of the daemon."""
        if verb == "start" and not self.broken:
            self.pipe.mkdir(parents=True, exist_ok=True)
            self.pipe.chmod(0o1777)
            environment = {"PATH": os.environ["PATH"], "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
            self.daemon = subprocess.Popen([self.control, *self.options], env=environment, start_new_session=True)
            assert _until((self.pipe / "control").exists)
        return self.daemon is not None and self.daemon.poll() is None

    def kill(self) -> None:
        """End the daemon alone as no program can prevent."""
        if self.daemon:
            self.daemon.kill()
            self.daemon.wait()

    def settle(self) -> None:
        """Do what systemd does when the daemon has ended: nothing of the unit goes on, or looks as if it did."""
        assert self.daemon
        with suppress(ProcessLookupError):
            os.killpg(self.daemon.pid, signal.SIGKILL)
        (self.pipe / "control").unlink(missing_ok=True)

    def server(self) -> int:
        """The process of the server."""
        return int(mps_control.ask(self.pipe / "control", "get_server_list"))

    def client(self, user: int | None = None) -> Client:
        """A program of a container, with the environment that the agent gives it."""
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.bench.library),
            "FAKE_GPU_COUNT": "1",
            "FAKE_GPU_MEMORY_MIB": str(GPU.memory_mib),
            "FAKE_GPU_CUDA": "13050",
            "FAKE_GPU_HEALTH": str(self.folder / "health"),
            **self.machine.environment,
            **self.mps.needs("c1", [QUARTER]).environment,
        }
        return Client([self.bench.client, "proc:0"], environment, user)

    def told(self) -> str:
        """What the node's check tells, "" where all is well."""
        (check,) = self.mps.daemons()
        return "" if check.ok else check.evidence.removeprefix(f"penstock-mps@{GPU.uuid}.service ")


def _until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def service(bench: Bench) -> Iterator[Service]:
    # short, for a socket's path may have 107 characters, and for all users
    with TemporaryDirectory(prefix="penstock-mps-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = Service(bench, folder, Machine(bench.library, folder / "state"))
        made.mps.prepare("c1", [QUARTER])
        yield made
        made.kill()
        made.settle()


def held_at_its_limit(service: Service) -> bool:
    """Whether a program that begins now ends where its share does."""
    with service.client() as client:
        client.must("init", "primary 0 0", f"malloc 0 {60 * MIB}")
        return client.do(f"malloc 1 {5 * MIB}").code == OUT_OF_MEMORY


def begun(service: Service) -> int:
    """What a program hears that begins now."""
    with service.client() as client:
        return client.do("init").code


def test_a_client_ends_at_its_limit_and_one_that_is_killed_leaves_the_others_alone(service: Service) -> None:
    with service.client() as stays, service.client() as goes:
        stays.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
        goes.must("init", "primary 0 0", f"malloc 0 {60 * MIB}")
        assert stays.do(f"malloc 1 {25 * MIB}").code == OUT_OF_MEMORY
        goes.process.kill()
        goes.process.wait()
        stays.must(f"malloc 2 {20 * MIB}")
        assert service.machine.used() == 60 * MIB
        assert service.told() == ""


def test_programs_of_a_daemon_that_is_killed_lose_the_gpu_and_the_next_container_has_a_daemon_and_its_limit(
    service: Service,
) -> None:
    with service.client() as client:
        client.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
        service.kill()
        assert service.told() == "does not run"
        assert _until(lambda: client.do("sync").code == SERVER_GONE)
        # what does not wait for the GPU does not notice, as on a card; its limit holds all the same
        client.must(f"malloc 1 {MIB}")
        assert client.do(f"malloc 2 {30 * MIB}").code == OUT_OF_MEMORY
    service.settle()
    service.mps.prepare("c2", [QUARTER])
    assert service.told() == ""
    assert held_at_its_limit(service)


def test_a_server_that_is_killed_takes_its_clients_along_and_the_next_program_has_another_one(service: Service) -> None:
    with service.client() as client:
        client.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
        os.kill(service.server(), signal.SIGKILL)
        assert _until(lambda: client.do("sync").code == SERVER_GONE)
        assert held_at_its_limit(service)
        assert client.do("sync").code == SERVER_GONE, "a process has one server"
    assert service.told() == ""


def test_a_container_that_was_detached_can_be_killed_at_work_and_one_that_was_not_ends_all(service: Service) -> None:
    with service.client() as detached, service.client() as killed, service.client() as stays:
        for number, client in enumerate((detached, killed, stays)):
            client.must("init", "primary 0 0", "kernel 0 busy_60000ms")
            service.containers[client.process.pid] = f"engine-{number}"
        detached.must("launch 0 0")
        service.mps.detach([QUARTER], "engine-0")
        assert _until(lambda: detached.do("malloc 0 1").code == TERMINATED)
        detached.process.kill()
        detached.process.wait()
        stays.must(f"malloc 0 {MIB}")
        assert service.told() == ""
        killed.must("launch 0 0")
        killed.process.kill()
        assert _until(lambda: stays.do("sync").code == ILLEGAL_ADDRESS)
        assert service.told().startswith("takes no programs: one had a fault")


def test_a_fault_of_one_ends_all_and_nobody_begins_before_they_have_gone(service: Service) -> None:
    with service.client() as guilty, service.client() as other:
        for client in (guilty, other):
            client.must("init", "primary 0 0", f"malloc 0 {MIB}")
        guilty.must("kernel 0 wrong_address", "launch 0 0")
        assert guilty.do("sync").code == ILLEGAL_ADDRESS
        assert _until(lambda: other.do(f"malloc 1 {MIB}").code == ILLEGAL_ADDRESS)
        assert service.told().startswith("takes no programs: one had a fault")
        guilty.process.kill()
        guilty.process.wait()
        assert begun(service) == NOT_READY
        assert service.told()
    assert _until(lambda: service.told() == "")
    assert held_at_its_limit(service)


def test_a_service_that_is_to_end_takes_nobody_and_waits_for_those_who_are_there(service: Service) -> None:
    with service.client() as client:
        client.must("init", "primary 0 0")
        with ThreadPoolExecutor(1) as pool:
            quitting = pool.submit(mps_control.ask, service.pipe / "control", "quit")
            assert _until(lambda: begun(service) == ENDING)
            client.must("sync")
            client.process.kill()
            client.process.wait()
            quitting.result(timeout=60)
    assert service.daemon
    assert service.daemon.wait(timeout=60) == 0


def test_a_service_that_is_to_end_soon_ends_its_clients(service: Service) -> None:
    with service.client() as client:
        client.must("init", "primary 0 0")
        mps_control.ask(service.pipe / "control", "quit -t 0.1")
        assert client.do("sync").code == SERVER_GONE


@pytest.mark.skipif(os.geteuid() != 0, reason="programs of several users need root")
def test_programs_of_all_users_are_served_beside_each_other(service: Service) -> None:
    with service.client() as root, service.client(user=12345) as other:
        for client in (root, other):
            client.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
            assert client.do(f"malloc 1 {30 * MIB}").code == OUT_OF_MEMORY


@pytest.mark.skipif(os.geteuid() != 0, reason="programs of several users need root")
def test_a_driver_that_serves_one_user_at_a_time_lets_the_others_wait(service: Service) -> None:
    service.kill()
    service.settle()
    service.options = ["-f"]
    service.mps.prepare("c1", [QUARTER])
    with ThreadPoolExecutor(1) as pool, service.client(user=12345) as other:
        with service.client() as root:
            root.must("init", "primary 0 0")
            waiting = pool.submit(other.do, "init")
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            root.must("sync")
        assert waiting.result(timeout=60).code == 0
        other.must("primary 0 0")
        assert other.do(f"malloc 0 {65 * MIB}").code == OUT_OF_MEMORY


def test_programs_on_a_gpu_that_has_vanished_fail_and_hold_up_no_others(service: Service) -> None:
    with service.client() as client:
        client.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
        (service.folder / "health").write_text("0 lost 1\n")
        assert client.do(f"malloc 1 {MIB}").code == UNKNOWN
        assert service.told() == "", "the daemon has no GPU of its own: that it is lost, other checks tell"
    (service.folder / "health").unlink()
    assert held_at_its_limit(service)


def test_no_container_begins_where_its_programs_would_have_no_limit(service: Service) -> None:
    service.kill()
    with service.client() as client:
        # what the agent prevents: no daemon, no limit
        client.must("init", "primary 0 0", f"malloc 0 {200 * MIB}")
    service.broken = True
    with pytest.raises(UnavailableError, match="does not run, which alone holds the share"):
        service.mps.prepare("c2", [QUARTER])


def test_a_program_that_began_while_the_daemon_did_not_run_is_told_as_long_as_it_goes_on(service: Service) -> None:
    service.kill()
    service.settle()
    with service.client() as program:
        program.must("init", "primary 0 0", f"malloc 0 {MIB}")
        service.containers[program.process.pid] = "engine-1"
        service.mps.apply("c1", [QUARTER], program.process.pid)
        service.mps.prepare("c2", [QUARTER])
        with service.client() as held:
            held.must("init", "primary 0 0", f"malloc 0 {MIB}")
            service.containers[held.process.pid] = "engine-1"
            assert service.told() == f"does not hold process {program.process.pid} of session c1"
        service.mps.remove("c1")
        assert service.told() == "", "it is of nobody whose share is held so"
        service.mps.apply("c1", [QUARTER], program.process.pid)
    assert service.told() == ""


def test_a_program_on_a_whole_gpu_needs_no_daemon(service: Service) -> None:
    service.kill()
    service.settle()
    with service.client() as program:
        program.must("init", "primary 0 0", f"malloc 0 {MIB}")
        service.containers[program.process.pid] = "engine-1"
        service.mps.apply("c1", [DeviceShare(GPU, 1000)], program.process.pid)
        service.mps.prepare("c2", [QUARTER])
        assert service.told() == ""
