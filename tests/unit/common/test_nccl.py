"""What NCCL's log tells: lines of the manual, of NCCL's releases, and of logs that want to be believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.nccl import MAX_LINE, MAX_QUOTE, NcclEvidence, NcclLog


def read(*lines: str) -> NcclEvidence:
    log = NcclLog()
    log.feed("\n".join(lines).encode())
    log.end()
    return log.evidence


MANUAL = (
    "NET: Using interface ib0:10.0.20.20<0>",
    "NET/IB: Using interface ib0 for sideband communication",
    "NET/IB: [1] mlx5_0:1/IB",
    "Using internal Network IB",
    "Ring 00: 0 -> 1 via NET/IB/0/GDRDMA",
)


def test_the_manuals_line_of_p2p() -> None:
    line = "NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC"
    assert read(line) == NcclEvidence(p2p=True, p2p_line=line)


def test_the_manuals_lines_of_rdma() -> None:
    line = "Ring 00: 0 -> 1 via NET/IB/0/GDRDMA"
    assert read(*MANUAL) == NcclEvidence(ib=True, ib_line=line, gdrdma=True, gdrdma_line=line)


def test_infiniband_without_gpudirect() -> None:
    seen = read(*MANUAL[:-1], "Ring 00: 0 -> 1 via NET/IB/0")
    assert (seen.ib, seen.gdrdma) == (True, False)
    assert seen.ib_line == seen.gdrdma_line == "Ring 00: 0 -> 1 via NET/IB/0"


def test_a_network_that_is_only_chosen_is_not_known_to_be_used() -> None:
    assert read(*MANUAL[:-1]) == NcclEvidence(ib_line="Using internal Network IB")


@pytest.mark.parametrize(
    ("said", "p2p", "ib", "gdrdma"),
    [
        # 2.3 and 2.4
        ("Ring 00 : 0[0] -> 1[1] via P2P/direct pointer", True, None, None),
        ("Ring 03 : 2[2] -> 3[3] via direct shared memory", False, None, None),
        ("Ring 00 : 3 -> 10 [send] via NET/IB/0/GDRDMA", None, True, True),
        ("Ring 01 : 10 -> 3 [receive] via NET/Socket/0", None, False, False),
        # 2.5 to 2.10
        ("Channel 00 : 0[1c000] -> 1[1d000] via P2P/IPC/read", True, None, None),
        ("Channel 01 : 1[1d000] -> 0[1c000] [send] via NET/IB/1/GDRDMA/Shared", None, True, True),
        ("Using network Socket", None, False, None),
        # 2.11 to 2.17
        ("Channel 02/0 : 0[3000] -> 1[4000] via SHM/direct/direct", False, None, None),
        ("Channel 07/0 : 8[7000] -> 0[7000] [receive] via NET/IBext/3/GDRDMA", None, True, True),
        ("Channel 04/0 : 4[8] -> 12[8] [send] via NET/IB/2(3)/GDRDMA", None, True, True),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA", None, False, False),
        # 2.18 to 2.27
        ("Channel 15/0 : 7[7] -> 0[0] via P2P/CUMEM/read", True, None, None),
        ("Channel 00/0 : 0[0] -> 4[0] via P2P/MNNVL", True, None, None),
        ("Channel 00/1 : 0[0] -> 9[1] [send] via NET/IB/0(1)/GDRDMA(PCI)/Shared", None, True, True),
        ("Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IBext_v8/0", None, True, False),
        ("CollNet 00/0 : 0 [receive] via COLLNET/SHARP/1/GDRDMA", None, True, True),
        ("Connected NVLS tree", True, None, None),
        ("NVLS comm 0x7f2362a19490 headRank 0 nHeads 4 buffSize 1048576 memSize 2097152", True, None, None),
        # what is no connection
        ("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)", None, None, None),
        ("Channel 00/02 :    0   1   2   3", None, None, None),
        ("Ring 00 : 1 -> 0 -> 1", None, None, None),
        ("NET/Plugin: Using internal network plugin.", None, None, None),
        ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.20.20<0>", None, None, None),
    ],
)
def test_lines_of_nccls_releases(said: str, p2p: bool | None, ib: bool | None, gdrdma: bool | None) -> None:
    seen = read(f"gpu1:4711:4793 [0] NCCL INFO {said}")
    assert (seen.p2p, seen.ib, seen.gdrdma) == (p2p, ib, gdrdma)
    told = {used: line for used, line in [(p2p, seen.p2p_line), (ib, seen.ib_line)] if used is not None}
    assert set(told.values()) <= {f"NCCL INFO {said}"}


@pytest.mark.parametrize(
    "prefix",
    ["", "[1,3]<stdout>:gpu1:23:75 [3] ", "[default0]:h:1:2 [0] ", "\x1b[36m(pid=7)\x1b[0m h:1:2 [0] ", "9%|\r"],
)
def test_what_stands_before_a_line_does_not_count(prefix: str) -> None:
    line = "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
    assert read(prefix + line) == NcclEvidence(p2p=True, p2p_line=line)


def test_its_version() -> None:
    assert read("h:1:2 [0] NCCL INFO Bootstrap", "NCCL version 2.21.5+cuda12.4").version == "2.21.5+cuda12.4"


def test_a_log_that_says_something_else_in_each_line_changes_little() -> None:
    log, seen = NcclLog(), set()
    ways = ("P2P/IPC", "SHM", "NET/IB/0", "NET/IB/0/GDRDMA", "NET/Socket/0")
    for number in range(500):
        log.feed(f"NCCL version 2.{number}\nChannel 00 : {number}[0] -> 1[1] via {ways[-number % 5]}\n".encode())
        seen.add(log.evidence)
    assert len(seen) < 8


def test_what_was_seen_counts_more_than_what_was_not() -> None:
    slow, fast = "Channel 00 : 0[a] -> 1[b] via SHM/direct", "Channel 01 : 0[a] -> 2[c] via P2P/IPC"
    assert read(slow, fast, slow) == read(fast) == NcclEvidence(p2p=True, p2p_line=fast)
    assert read(slow, slow.replace("00", "01")).p2p_line == slow


@pytest.mark.parametrize(
    "line",
    [
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\x1b]0;owned\x07",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\u202e",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/\0",
        "I saw: Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2PX",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via ",
        f"NCCL INFO Channel 00/0 : {'9' * 40} -> 1[1] via P2P/IPC",
    ],
)
def test_a_line_that_is_not_nccls_says_nothing(line: str) -> None:
    assert read(line) == NcclEvidence()


def test_a_line_is_quoted_up_to_a_length() -> None:
    seen = read("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/" + "x" * 600)
    assert len(seen.p2p_line) == MAX_QUOTE


def test_a_hostile_log_takes_no_memory_and_comes_to_an_end() -> None:
    log = NcclLog()
    for _ in range(64):
        log.feed(b"NCCL INFO Channel 00/0 : 0[0] -> 1[1] via " + b"\x1b[" * 32_000)
    assert len(log._rest) <= MAX_LINE
    log.feed(b"\n" + b"NCCL INFO Using network " * 40 + b"\n" * 60_000)
    log.feed(b"NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\n" * 20_000)
    assert log.evidence.p2p is False


def test_a_ranks_line_in_pieces() -> None:
    log = NcclLog()
    for piece in (b"x:1 [0] NCCL INFO Chan", b"nel 00 : 0[0] -> 1[1] via P2", b"P/IPC", b"\n"):
        log.feed(piece)
    assert log.evidence.p2p


@given(st.lists(st.binary(max_size=80)))
def test_whatever_is_written_is_read(pieces: list[bytes]) -> None:
    log = NcclLog()
    for piece in pieces:
        log.feed(piece)
    log.end()
    assert log.evidence.written().isascii()


@given(st.binary(max_size=400), st.integers(1, 50))
def test_pieces_say_what_the_whole_says(noise: bytes, step: int) -> None:
    text = noise + b"\nh:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] [send] via NET/IB/0\n" + noise
    whole, pieces = NcclLog(), NcclLog()
    whole.feed(text)
    for start in range(0, len(text), step):
        pieces.feed(text[start : start + step])
    assert pieces.evidence == whole.evidence
    assert whole.evidence.ib


def test_complete_is_what_nothing_can_add_to() -> None:
    log = NcclLog()
    log.feed(b"Channel 00 : 0[0] -> 1[1] via P2P/IPC\n")
    assert not log.is_complete
    log.feed(b"Channel 00 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA\n")
    assert log.is_complete


def test_two_readings_together_forget_nothing() -> None:
    first = NcclEvidence(version="2.4.8", p2p=True, p2p_line="a", ib=False, ib_line="b")
    later = NcclEvidence(p2p=False, p2p_line="c", ib=True, ib_line="d")
    assert first.with_later(later) == NcclEvidence(version="2.4.8", p2p=True, p2p_line="a", ib=True, ib_line="d")
    assert first.with_later(NcclEvidence()) == first


def test_what_an_agent_tells_is_shown_as_one_short_line() -> None:
    told = NcclEvidence.model_validate({"p2p": True, "p2p_line": "\x1b[2J\n\0" + "x" * 999, "mood": 1})
    assert told.p2p_line == "?[2J??" + "x" * (MAX_QUOTE - 6)
