"""Leases at a node, held by real processes over a real socket."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest

from appliance.agent import lease_holder
from appliance.agent.docker import leases as leasing
from appliance.agent.docker.leases import Leases, MissingLeaseError, step_cgroup
from common.errors import ConflictError, UnavailableError
from common.lease_protocol import HOLDER, Lease

pytestmark = pytest.mark.anyio

LEASE = str(Lease(UUID("9b2f9c9e-5a45-4d0c-9a53-0d0a1cf7d1a4"), 2))


PYTHON = "/usr/bin/python3"
"""The system's own: other users do not come to that of the tests."""


@dataclass
class Node:
    """Leases that are listened to, and the containers of those that are `live`, which end when the test lets them."""

    leases: Leases
    path: Path
    live: set[str] = field(default_factory=set)
    withdrawn: list[str] = field(default_factory=list)
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    refusals: int = 0

    def find(self) -> Collection[str]:
        return self.live

    async def withdraw(self, lease: str) -> None:
        self.withdrawn.append(lease)
        if self.refusals:
            self.refusals -= 1
            raise UnavailableError("Docker is away")
        await self.ends.wait()
        self.live.discard(lease)


@asynccontextmanager
async def listening(folder: Path, users: Collection[int] = ()) -> AsyncIterator[Node]:
    path = folder / "leases" / "agent.sock"
    node = Node(Leases(path, users), path)
    task = asyncio.create_task(node.leases.run(node.find, node.withdraw))
    await until(path.exists)
    yield node
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@contextmanager
def open_to_all() -> Iterator[Path]:
    """A folder that other users come to."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def hold(path: Path, lease: str = LEASE, user: int | None = None) -> subprocess.Popen[bytes]:
    program = Path(lease_holder.__file__).read_text()
    # as text, for another user may not come to this folder
    return subprocess.Popen([PYTHON, "-c", program, lease, str(path)], user=user, env={})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


def over(holder: subprocess.Popen[bytes]) -> bool:
    return holder.poll() is not None


async def test_a_launch_waits_for_the_step_that_holds_its_lease(tmp_path: Path) -> None:
    async with listening(tmp_path) as node:
        waiting = asyncio.create_task(node.leases.wait(LEASE))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        holder = hold(node.path)
        await waiting
        assert node.leases.is_held(LEASE)
        node.ends.set()
        holder.terminate()
        await until(lambda: over(holder))
        assert holder.returncode == 0


async def test_without_a_step_a_launch_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "LEND_S", 0.05)
    leases = Leases(tmp_path / "sock")
    with pytest.raises(ConflictError, match="the step of its lease has not begun on this node"):
        await leases.wait(LEASE)
    with pytest.raises(MissingLeaseError):
        leases.cgroup(LEASE)
    await leases.wait("")
    assert leases.cgroup("") == ""


async def test_a_step_that_is_told_to_end_waits_for_its_containers(tmp_path: Path) -> None:
    async with listening(tmp_path) as node:
        holder = hold(node.path)
        await node.leases.wait(LEASE)
        node.live.add(LEASE)
        holder.terminate()
        await until(lambda: bool(node.withdrawn))
        assert not node.leases.is_held(LEASE)
        await asyncio.sleep(0.2)
        assert not over(holder), "Slurm would give its place away"
        node.ends.set()
        await until(lambda: over(holder))


async def test_a_step_that_is_killed_ends_its_containers_as_soon_as_that_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "TRY_AGAIN_S", 0.01)
    async with listening(tmp_path) as node:
        holder = hold(node.path)
        await node.leases.wait(LEASE)
        node.live.add(LEASE)
        node.refusals = 1
        node.ends.set()
        holder.kill()
        await until(lambda: not node.live)
        assert node.withdrawn == [LEASE, LEASE]
        holder.wait()


async def test_of_two_steps_of_a_lease_one_is_enough(tmp_path: Path) -> None:
    async with listening(tmp_path) as node:
        first, second = hold(node.path), hold(node.path)
        await until(lambda: len(node.leases._held[LEASE]) == 2)
        first.terminate()
        await until(lambda: over(first))
        assert node.leases.is_held(LEASE)
        assert not node.withdrawn
        node.ends.set()
        second.terminate()
        await until(lambda: over(second))
        assert node.withdrawn == [LEASE]


async def test_a_step_comes_back_to_an_agent_that_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "CHECK_S", 0.05)
    async with listening(tmp_path) as node:
        holder = hold(node.path)
        await node.leases.wait(LEASE)
    async with listening(tmp_path) as node:
        node.live |= {LEASE, "penstock:gone:0"}
        node.ends.set()
        await until(lambda: node.leases.is_held(LEASE))
        # by now the step has come back, however long a busy machine took for that
        monkeypatch.setattr(leasing, "RETURN_S", 0.05)
        await until(lambda: node.live == {LEASE})
        assert set(node.withdrawn) == {"penstock:gone:0"}
        holder.terminate()
        await until(lambda: over(holder))


async def test_a_step_that_ends_while_the_agent_is_away_tells_the_next_one(tmp_path: Path) -> None:
    async with listening(tmp_path) as node:
        holder = hold(node.path)
        await node.leases.wait(LEASE)
    holder.terminate()
    await asyncio.sleep(0.3)
    assert not over(holder), "its containers run"
    async with listening(tmp_path) as node:
        node.ends.set()
        await until(lambda: over(holder))
        assert node.withdrawn == [LEASE]


async def test_a_step_that_no_agent_was_told_of_ends_at_once(tmp_path: Path) -> None:
    holder = hold(tmp_path / "nowhere")
    await asyncio.sleep(0.3)
    holder.send_signal(signal.SIGTERM)
    await until(lambda: over(holder))


@pytest.mark.parametrize("told", ["penstock:9b2f9c9e:0", "x" * 4096, "other:9b2f9c9e-5a45-4d0c-9a53-0d0a1cf7d1a4:0"])
async def test_what_is_no_lease_is_not_held(tmp_path: Path, told: str) -> None:
    async with listening(tmp_path) as node:
        reader, writer = await asyncio.open_unix_connection(node.path)
        writer.write(f"{told}\n".encode())
        assert await reader.read() == b""
        writer.close()
        assert not node.leases._held


async def test_other_users_of_the_node_hold_nothing() -> None:
    with open_to_all() as folder:
        await _only_root_and_one_user_hold(folder)


async def _only_root_and_one_user_hold(folder: Path) -> None:
    async with listening(folder, users=[65533]) as node:
        shown = node.path.stat()
        assert (shown.st_uid, shown.st_mode & 0o777) == (65533, 0o600), "others take no time of the agent"
        stranger = hold(node.path, user=65534)
        await asyncio.sleep(0.5)
        assert not node.leases._held
        known = hold(node.path, user=65533)
        await node.leases.wait(LEASE)
        node.ends.set()
        for holder in (stranger, known):
            holder.kill()
            holder.wait()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n",
            "/system.slice/slurmstepd.scope/job_7/step_batch",
        ),
        (
            "6:freezer:/slurm_w1/uid_0/job_1/step_0\n5:cpu:/\n4:memory:/slurm/uid_0/job_1/step_0/task_0\n0::/\n",
            "/slurm/uid_0/job_1/step_0",
        ),
        ("6:freezer:/slurm_w1/uid_0/job_1/step_0\n4:memory:/user.slice\n0::/\n", ""),
        ("0::/user.slice/job_7/other\n", ""),
        ("0::/\n", ""),
    ],
)
def test_the_cgroup_of_a_step_is_found(text: str, found: str) -> None:
    assert step_cgroup(text) == found


def test_leases_are_read_as_they_are_written() -> None:
    lease = Lease.read(LEASE)
    assert lease is not None
    assert str(lease) == LEASE
    assert Lease.read(LEASE + "x") is None
    assert HOLDER.startswith("/usr/lib/penstock/")


async def test_no_lease_that_nobody_holds_waits_for_the_end_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the last of many would go on for long, and a step that comes back meanwhile would lose its containers."""
    monkeypatch.setattr(leasing, "RETURN_S", 0.1)
    monkeypatch.setattr(leasing, "CHECK_S", 0.05)
    async with listening(tmp_path) as node:
        orphans = {"penstock:one:0", "penstock:another:0"}
        node.live |= orphans
        await until(lambda: set(node.withdrawn) == orphans)
        assert node.live == orphans, "none has ended yet"
        node.ends.set()
        await until(lambda: not node.live)
