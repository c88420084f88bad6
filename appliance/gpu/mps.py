"""Limits per client by CUDA's multi-process service: one daemon per GPU, which systemd runs.

A process talks to one daemon only, so a container has its share of one GPU. Its limits stand in its environment, from
where each process reads them at its start, for itself alone: they are the same as long as it runs, several processes
have as many shares, and one that takes them out of its environment has no limit. The agent's memory enforcer sees
the sum.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pynvml
import structlog

from appliance.gpu import cgroups
from appliance.gpu.devices import DeviceShare, Needs
from appliance.gpu.enforcement import AccountedOnly, Probe
from appliance.gpu.telemetry import Telemetry
from common import process
from common.checks import Check
from common.errors import InputError, PenstockError, UnavailableError
from common.gpu.kinds import Compute, Enforcement
from common.protocol import GpuDevice, Mount

log = structlog.get_logger()

CONTROL = Path("/usr/bin/nvidia-cuda-mps-control")
CHECK = "gpu.mps"
VOLTA = 7
"""Major compute capability of the first GPUs with limits per client."""
_START_S = 5.0
_ANSWER_S = 5.0
_MOST_SERVERS = 4
_MOST_CLIENTS = 64
_MOST_BYTES = 64 << 10
_NUMBER = re.compile(r"[0-9]{1,10}")


class Mps(AccountedOnly):
    """Limits that the multi-process service holds."""

    detaches = True

    def __init__(
        self,
        telemetry: Telemetry,
        folder: Path,
        compute: Compute,
        control: Path = CONTROL,
        *,
        container_of: Callable[[int], str | None] = cgroups.container_of,
        systemctl: Callable[[str, str], bool] = lambda verb, unit: process.succeeds(["systemctl", verb, unit]),
    ) -> None:
        """Use daemons that have their pipes and shared memory below `folder`, in a folder each by the GPU's id."""
        super().__init__(Enforcement.MPS)
        self._telemetry = telemetry
        self._folder = folder
        self._compute = compute
        self._control = control
        self._container_of = container_of
        self._systemctl = systemctl
        # GPUs whose daemon was started, or found
        self._wanted: set[str] = set()
        # containers with parts of GPUs by the container engine's id, which tells whose a process is
        self._held: dict[str, str] = {}

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        """Return whether every GPU is new enough and has its daemon, which is started where it is not there."""
        if not os.access(self._control, os.X_OK):
            return Probe(False, f"there is no program {self._control}")
        try:
            with self._telemetry.session():
                for device in devices:
                    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(self._telemetry.handle(device.uuid))
                    if major < VOLTA:
                        return Probe(
                            False, f"GPU {device.uuid} is older than Volta (compute capability {major}.{minor})"
                        )
        except pynvml.NVMLError as error:
            return Probe(False, f"NVML does not tell how old the GPUs are: {error}")
        for device in devices:
            if not self._started(device.uuid):
                return Probe(False, f"the daemon {_unit(device.uuid)} does not start; see its journal")
        return Probe(True, "each GPU has its daemon")

    def leave(self, devices: Sequence[GpuDevice]) -> None:
        """Stop the daemons of GPUs that no longer need them."""
        for device in devices:
            self._wanted.discard(device.uuid)
            if self._socket(device.uuid).exists():
                log.info("the multi-process service ends", gpu=device.uuid)
                self._systemctl("stop", _unit(device.uuid))

    def prepare(self, container: str, shares: Sequence[DeviceShare]) -> None:
        """Start the daemon of a part of a GPU where it does not run; raises UnavailableError where it does not start.

        A program that finds no daemon would work without one, and without any limit.
        """
        for share in shares:
            if not share.is_whole and not self._started(share.device.uuid):
                raise UnavailableError(
                    f"the multi-process service of GPU {share.device.uuid} does not run, which alone holds the share",
                    where="gpus",
                    hint=f"look at `journalctl -u {_unit(share.device.uuid)}` on the node",
                )

    def daemons(self) -> list[Check]:
        """Return a check for each GPU whose shares a daemon holds: whether that takes programs. It may block."""
        return [self._check(uuid) for uuid in sorted(self._wanted)]

    def _check(self, uuid: str) -> Check:
        hint = f"look at `journalctl -u {_unit(uuid)}`; sessions that it held have lost the GPU: start them again"
        trouble = ""
        if not self._runs(uuid):
            trouble = "does not run"
        elif (fault := self._has_fault(uuid)) is None:
            trouble = "does not answer"
        elif fault:
            trouble = "takes no programs: one had a fault, and those that ran beside it have yet to end"
            hint = (
                "end the sessions with parts of this GPU, whose programs have lost it; the next ones have it as before"
            )
        elif past := self._past(uuid):
            named = ", ".join(f"process {pid} of session {container}" for pid, container in past)
            trouble = f"does not hold {named}"
            hint = "end what it tells of: it began while the daemon did not run, and has no limit, or has lost the GPU"
        said = f"{_unit(uuid)} {trouble or 'runs'}"
        return Check.of(CHECK, "MPS daemon runs", ok=not trouble, evidence=said, hint=hint, subject=uuid)

    def _has_fault(self, uuid: str) -> bool | None:
        """Return whether a server waits for its clients to end after a fault; None where the daemon does not answer."""
        until = time.monotonic() + _ANSWER_S
        try:
            servers = self._numbers(uuid, "get_server_list", _MOST_SERVERS, until)
            return any("FAULT" in self._ask(uuid, f"get_server_status {each}", until) for each in servers)
        except PenstockError as error:
            log.info("the multi-process service does not answer", gpu=uuid, reason=str(error))
            return None

    def _past(self, uuid: str) -> list[tuple[int, str]]:
        """Return the processes of containers with parts of a GPU that are on it and no clients of its daemon."""
        # first: a client has none of the GPU before the daemon knows it
        processes = self._telemetry.memory(uuid) or {}
        until = time.monotonic() + _ANSWER_S
        try:
            servers = self._numbers(uuid, "get_server_list", _MOST_SERVERS, until) if processes else []
            clients = {
                int(client)
                for server in servers
                for client in self._numbers(uuid, f"get_client_list {server}", _MOST_CLIENTS, until)
            }
        except PenstockError as error:
            log.info("the multi-process service does not tell its clients", gpu=uuid, reason=str(error))
            return []
        found = []
        for pid in sorted(processes.keys() - clients):
            container = self._held.get(self._container_of(pid) or "")
            if container:
                found.append((pid, container))
        return found

    def _numbers(self, uuid: str, what: str, most: int, until: float) -> list[str]:
        """Return the numbers of processes in an answer: a session that holds the pipes may answer anything."""
        return [word for word in self._ask(uuid, what, until).split()[:most] if _NUMBER.fullmatch(word)]

    def _ask(self, uuid: str, what: str, until: float) -> str:
        if (left_s := until - time.monotonic()) <= 0:
            raise UnavailableError(
                f"the multi-process service of GPU {uuid} is too slow",
                where=uuid,
                hint=f"look at `journalctl -u {_unit(uuid)}`",
            )
        environment = {"PATH": os.defpath, "CUDA_MPS_PIPE_DIRECTORY": str(self._socket(uuid).parent)}
        return process.run(
            [self._control], env=environment, stdin=f"{what}\n", timeout_s=left_s, most_bytes=_MOST_BYTES
        )

    def check(self, shares: Sequence[DeviceShare]) -> None:
        """Refuse a part of a GPU beside others; raises InputError."""
        if len(shares) > 1 and not all(share.is_whole for share in shares):
            raise InputError(
                "a process reaches one GPU only by the multi-process service, so a part of a GPU cannot go with others",
                where="gpus",
                hint="ask for a part of one GPU or for whole ones, or use nodes with another kind of enforcement",
            )

    def check_change(self, shares: Sequence[DeviceShare]) -> None:
        """Refuse every change: clients keep the limits that they started with; raises InputError."""
        raise InputError(
            "limits of the multi-process service cannot change while a session runs",
            where="gpus",
            hint="start the session again with the other share",
        )

    def needs(self, container: str, shares: Sequence[DeviceShare]) -> Needs:
        """Return the daemon's pipes and shared memory, and the limits; whole GPUs need none of it."""
        parts = [share for share in shares if not share.is_whole]
        if not parts:
            return Needs()
        share = parts[0]
        folder = self._folder / share.device.uuid
        environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            # the one GPU of the container is its number 0
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={share.memory_mib}M",
        }
        if self._compute is not Compute.OFF:
            # a share below one percent still needs some threads
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(share.milli // 10, 1))
        return Needs(
            mounts=(
                Mount(source=str(folder / "pipe"), target=str(folder / "pipe")),
                Mount(source=str(folder / "shm"), target="/dev/shm"),  # noqa: S108 - where the daemon's clients look
            ),
            environment=environment,
        )

    def apply(self, container: str, shares: Sequence[DeviceShare], pid: int) -> None:
        """Know the processes of a container with a part of a GPU from now on."""
        engine_id = self._container_of(pid)
        if engine_id and not all(share.is_whole for share in shares):
            self._held = {**self._held, engine_id: container}

    def remove(self, container: str) -> None:
        """Forget a container that has gone."""
        # a new one: another thread may look
        self._held = {engine_id: name for engine_id, name in self._held.items() if name != container}

    def detach(self, shares: Sequence[DeviceShare], engine_id: str) -> None:
        """Let the service give up the clients of a container; raises PenstockError where it does not answer.

        One that is killed while its work is in flight may end all other clients of the GPU.
        """
        until = time.monotonic() + _ANSWER_S
        for uuid in (share.device.uuid for share in shares if not share.is_whole):
            for server in self._numbers(uuid, "get_server_list", _MOST_SERVERS, until):
                for client in self._numbers(uuid, f"get_client_list {server}", _MOST_CLIENTS, until):
                    if self._container_of(int(client)) == engine_id:
                        log.info("a program lets go of its GPU", gpu=uuid, process=client)
                        self._ask(uuid, f"terminate_client {server} {client}", until)

    def _runs(self, uuid: str) -> bool:
        # the socket of one that was killed stays
        return self._socket(uuid).exists() and self._systemctl("is-active", _unit(uuid))

    def _started(self, uuid: str) -> bool:
        self._wanted.add(uuid)
        if self._runs(uuid):
            return True
        if not self._systemctl("start", _unit(uuid)):
            return False
        deadline = time.monotonic() + _START_S
        while not self._socket(uuid).exists():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _socket(self, uuid: str) -> Path:
        return self._folder / uuid / "pipe/control"


def _unit(uuid: str) -> str:
    return f"penstock-mps@{uuid}.service"
