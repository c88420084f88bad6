"""Faults of what other kinds of enforcement stand on, with a daemon and programs that really end: MPS, and MIG."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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

MPS_GONE = 806
"""CUDA_ERROR_MPS_RPC_FAILURE."""
GPU = GpuDevice(index=0, uuid=gpu_uuid(0), model="", memory_mib=256)
QUARTER = DeviceShare(GPU, 250)


@dataclass
class Service:
    """A node with one GPU that MPS holds, and its daemon as systemd would run it."""

    bench: Bench
    folder: Path
    machine: Machine
    daemon: subprocess.Popen[bytes] | None = None
    broken: bool = False

    def __post_init__(self) -> None:
        self.mps = Mps(Telemetry(), self.folder, Compute.STRICT, systemctl=self.systemctl)

    def systemctl(self, verb: str, unit: str) -> bool:
        """Do what systemd does with the unit of the daemon."""
        if verb == "start" and not self.broken:
            pipe = self.folder / GPU.uuid / "pipe"
            pipe.mkdir(parents=True, exist_ok=True)
            (pipe / "control").unlink(missing_ok=True)
            program = mps_control.install(self.folder / "bin")
            environment = {"PATH": os.environ["PATH"], "CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
            self.daemon = subprocess.Popen([program, "-f"], env=environment)
            until = time.monotonic() + 30
            while not (pipe / "control").exists() and time.monotonic() < until:
                time.sleep(0.01)
        return self.daemon is not None and self.daemon.poll() is None

    def kill(self) -> None:
        """End the daemon as no program can prevent."""
        if self.daemon:
            self.daemon.kill()
            self.daemon.wait()

    def client(self) -> Client:
        """A program of a container, with the environment that the agent gives it."""
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.bench.library),
            "FAKE_GPU_COUNT": "1",
            "FAKE_GPU_MEMORY_MIB": str(GPU.memory_mib),
            "FAKE_GPU_CUDA": "13050",
            **self.machine.environment,
            **self.mps.needs("c1", [QUARTER]).environment,
        }
        return Client([self.bench.client, "proc:0"], environment)


@pytest.fixture
def service(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # short, for a socket's path may have 107 characters
    folder = tmp_path_factory.mktemp("mps")
    made = Service(bench, folder, Machine(bench.library, folder / "state"))
    made.mps.prepare("c1", [QUARTER])
    yield made
    made.kill()


def test_a_client_ends_at_its_limit_and_one_that_is_killed_leaves_the_others_alone(service: Service) -> None:
    with service.client() as stays, service.client() as goes:
        stays.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
        goes.must("init", "primary 0 0", f"malloc 0 {60 * MIB}")
        assert stays.do(f"malloc 1 {25 * MIB}").code == OUT_OF_MEMORY
        goes.process.kill()
        goes.process.wait()
        stays.must(f"malloc 2 {20 * MIB}")
        assert service.machine.used() == 60 * MIB
        assert [check.ok for check in service.mps.daemons()] == [True]


def test_clients_of_a_daemon_that_is_killed_fail_and_the_next_container_has_a_daemon_and_its_limit(
    service: Service,
) -> None:
    with service.client() as client:
        client.must("init", "primary 0 0", f"malloc 0 {40 * MIB}")
        service.kill()
        assert client.do(f"malloc 1 {MIB}").code == MPS_GONE
        assert [check.ok for check in service.mps.daemons()] == [False]
    service.mps.prepare("c2", [QUARTER])
    assert [check.ok for check in service.mps.daemons()] == [True]
    with service.client() as client:
        client.must("init", "primary 0 0")
        assert client.do(f"malloc 0 {65 * MIB}").code == OUT_OF_MEMORY


def test_no_container_begins_where_its_programs_would_have_no_limit(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.kill()
    with service.client() as client:
        # what the agent prevents: no daemon, no limit
        client.must("init", "primary 0 0", f"malloc 0 {200 * MIB}")
    service.broken = True
    with pytest.raises(UnavailableError, match="does not run, which alone holds the share"):
        service.mps.prepare("c2", [QUARTER])
