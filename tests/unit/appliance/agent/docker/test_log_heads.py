"""Heads of logs: read once, up to a length, whatever the engine does meanwhile."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator

import pytest

from appliance.agent.docker.log_heads import LogHeads
from common.nccl import NcclEvidence

pytestmark = pytest.mark.anyio

P2P = b"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
MOST_LINES = 40_000
SHM = b"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\n"


class Log:
    """A log that grows; `None` ends it, and an error breaks it."""

    def __init__(self, *pieces: bytes | Exception | None) -> None:
        self.pieces: queue.Queue[bytes | Exception | None] = queue.Queue()
        self.taken = 0
        self.closed = False
        for piece in pieces:
            self.pieces.put(piece)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = self.pieces.get(timeout=10)
        if isinstance(piece, Exception):
            raise piece
        if piece is None:
            raise StopIteration
        self.taken += 1
        return piece

    def close(self) -> None:
        self.closed = True
        self.pieces.put(None)


class EmptyLines:
    """A log of empty lines, each sent by itself as Docker does; it ends somewhat after what is read of one."""

    def __init__(self) -> None:
        self.taken = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.taken > MOST_LINES:
            raise StopIteration
        self.taken += 1
        return b"\n"

    def close(self) -> None:
        self.closed = True


async def read(log: Log, head: int = 1 << 20) -> NcclEvidence | None:
    told: dict[str, NcclEvidence] = {}
    opened: list[str] = []

    def opening(identity: str) -> Log:
        opened.append(identity)
        return log

    heads = LogHeads(opening, told.__setitem__, head)
    heads.follow("c1")
    heads.follow("c1")
    await heads.finish("c1")
    assert opened == ["c1"], "it is read once"
    await heads.close()
    return told.get("c1")


async def test_the_rest_of_a_log_is_waited_for() -> None:
    log = Log(b"hello\n")
    reading = asyncio.create_task(read(log))
    await asyncio.sleep(0.05)
    for piece in (P2P[:20], P2P[20:-1], None):
        log.pieces.put(piece)
    assert await reading == NcclEvidence(p2p=True, p2p_line=P2P.decode().partition("] ")[2].strip())


async def test_no_more_than_a_head_is_read() -> None:
    log = Log(SHM, b"x" * 1000, b"\n" + P2P, P2P, None)
    seen = await read(log, head=len(SHM) + 500)
    assert seen is not None
    assert seen.p2p is False
    assert log.taken == 2


async def test_a_log_of_empty_lines_takes_no_more_turns_than_others() -> None:
    log = EmptyLines()
    heads = LogHeads(lambda _: log, lambda *_: None)
    heads.follow("c1")
    try:
        async with asyncio.timeout(60):
            while not log.closed:  # noqa: ASYNC110 - it is closed in a thread
                await asyncio.sleep(0.01)
    finally:
        await heads.close()
    assert log.taken <= MOST_LINES


async def test_what_was_seen_stays_when_the_engine_is_away() -> None:
    seen = await read(Log(P2P, ConnectionResetError("the engine went")))
    assert seen is not None
    assert seen.p2p


async def test_a_log_that_says_nothing_is_told_of_by_nobody() -> None:
    assert await read(Log(b"hello\n", None)) is None


async def test_the_log_of_a_container_that_is_gone_is_let_go_of() -> None:
    log = Log(b"hello\n")
    heads = LogHeads(lambda _: log, lambda *_: None)
    heads.follow("c1")
    await asyncio.sleep(0.05)
    heads.forget("c1")
    async with asyncio.timeout(60):
        while not log.closed:  # noqa: ASYNC110 - it is closed in a thread
            await asyncio.sleep(0.01)
