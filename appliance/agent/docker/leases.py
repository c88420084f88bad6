"""Leases at a node: which sessions may have containers here, for as long as a step of Slurm holds their lease.

The step's process tells its lease at a socket. Containers run below the cgroup of its step. When it lets go, or is
gone, they end, and only then the step does, if it still lives.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from appliance.agent.lease_holder import ENDED
from common.errors import ConflictError, PenstockError, UnavailableError
from common.lease_protocol import LEASE_ENDED, Lease

log = structlog.get_logger()

ROOT = 0
HELLO_S = 5.0
LEND_S = 5.0
"""So long a launch waits for its step: Slurm tells of a job before that has begun on its nodes."""
RETURN_S = 30.0
"""So long a step has time to come to an agent that was started again."""
CHECK_S = 2.0
GRACE_S = 20
"""Seconds that containers of a lease that has ended have to end by themselves; Slurm's KillWait is above it."""
TRY_AGAIN_S = 1.0
MAX_TEXT = 256
_CREDENTIALS = struct.Struct("3i")
_STEP = re.compile(r"(/\S*/job_\d+/step_[^/\s]+)(?:/\S*)?")

Withdraw = Callable[[str], Awaitable[None]]
"""Ends the containers of a lease. Raises PenstockError where it cannot."""


class MissingLeaseError(UnavailableError):
    """The lease of a container has ended before it started."""


class Leases:
    """The leases that steps hold at this node, with the cgroups of these; steps of root and of `users` are heard."""

    def __init__(self, path: Path, users: Collection[int] = (), *, below_steps: bool = True) -> None:
        """Start with none. Where not `below_steps` containers run where they always do."""
        self._path = path
        self._users = {ROOT, *users}
        self._below_steps = below_steps
        self._held: defaultdict[str, list[str]] = defaultdict(list)
        self._changed = asyncio.Event()

    def is_held(self, lease: str) -> bool:
        """Return whether the containers of a lease may run; those without any may."""
        return not lease or bool(self._held.get(lease))

    async def wait(self, lease: str) -> None:
        """Return when a lease is held; raises ConflictError where that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEND_S):
                while not self.is_held(lease):
                    changed = self._changed
                    await changed.wait()
        if not self.is_held(lease):
            raise ConflictError(
                "the step of its lease has not begun on this node",
                where="lease",
                hint="look at slurmd on the node: systemctl status slurmd",
            )

    def cgroup(self, lease: str) -> str:
        """Return below which cgroup the containers of a lease run, empty: none. Raises MissingLeaseError."""
        if not self.is_held(lease):
            raise MissingLeaseError(f"{LEASE_ENDED} before its container was made", where="lease")
        return self._held[lease][0] if lease and self._below_steps else ""

    async def run(self, live: Callable[[], Collection[str]], withdraw: Withdraw) -> None:
        """Listen for steps, for ever; containers of `live` leases that nobody holds any more are withdrawn."""
        self._path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        connected: set[asyncio.Task[None]] = set()

        def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._attend(reader, writer, withdraw))
            connected.add(task)
            task.add_done_callback(connected.discard)

        server = await asyncio.start_unix_server(connect, self._path, limit=MAX_TEXT)
        # nobody else's connections take the agent's time; where several may come, who connects shows who he is
        others = self._users - {ROOT}
        if len(others) == 1:
            os.chown(self._path, next(iter(others)), -1)
        self._path.chmod(0o666 if len(others) > 1 else 0o600)
        try:
            async with server:
                await self._sweep(live, withdraw)
        finally:
            for task in connected:
                task.cancel()

    async def _sweep(self, live: Callable[[], Collection[str]], withdraw: Withdraw) -> None:
        clock = asyncio.get_running_loop()
        unheld: dict[str, float] = {}
        while True:
            missing = {lease for lease in live() if not self.is_held(lease)}
            unheld = {lease: unheld.get(lease, clock.time()) for lease in missing}
            over = [lease for lease, since in unheld.items() if clock.time() - since > RETURN_S]
            # at once: a step that comes back while others end is heard before the next look
            await asyncio.gather(*(_end(lease, withdraw) for lease in over))
            await asyncio.sleep(CHECK_S)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, withdraw: Withdraw) -> None:
        """Hold the lease of one step until its process lets go, and let that go when the containers have ended."""
        try:
            if (told := await self._hello(reader, writer)) is not None:
                await self._hold(*told, reader, withdraw)
                writer.write(ENDED)
        finally:
            writer.close()

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, str] | None:
        connection: socket.socket = writer.get_extra_info("socket")
        asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(asked)
        if uid not in self._users:
            log.warning("a lease is not taken of this user", uid=uid)
            return None
        try:
            async with asyncio.timeout(HELLO_S):
                text = (await reader.readline()).decode().strip()
            lease = Lease.read(text)
            cgroup = step_cgroup(await asyncio.to_thread(Path(f"/proc/{pid}/cgroup").read_text))
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("a step did not say what it holds", reason=str(error) or type(error).__name__)
            return None
        if lease is None:
            log.warning("a step holds what is no lease", told=text)
            return None
        return str(lease), cgroup

    async def _hold(self, lease: str, cgroup: str, reader: asyncio.StreamReader, withdraw: Withdraw) -> None:
        self._held[lease].append(cgroup)
        self._tell()
        log.info("a lease is held", lease=lease, cgroup=cgroup)
        try:
            with suppress(ConnectionError, ValueError):
                while await reader.readline():
                    pass
        finally:
            self._held[lease].remove(cgroup)
            if not self._held[lease]:
                del self._held[lease]
        log.info("a lease is let go of", lease=lease)
        ended = False
        while not (ended or self.is_held(lease)):
            ended = await _end(lease, withdraw)
            await asyncio.sleep(0 if ended else TRY_AGAIN_S)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def _end(lease: str, withdraw: Withdraw) -> bool:
    try:
        await withdraw(lease)
    except PenstockError as error:
        log.warning("containers of a lease that has ended go on", lease=lease, reason=str(error))
        return False
    return True


def step_cgroup(text: str) -> str:
    """Return the cgroup of the step to which a process belongs, of what /proc says; empty where Slurm made none.

    Where controllers have trees of their own, it is the one of memory.
    """
    found: Mapping[str, str] = {
        controllers: step[1]
        for line in text.splitlines()
        for _, controllers, path in [line.split(":", 2)]
        if (step := _STEP.fullmatch(path))
    }
    of_memory = (path for controllers, path in found.items() if "memory" in controllers.split(","))
    return next(of_memory, found.get("", ""))
