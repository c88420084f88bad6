"""Heads of the audit log that a node keeps: enough of them, and each behind which the log went back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from appliance.agent.reports import audit_heads
from appliance.agent.reports.audit_heads import DAY, HOUR, AuditHeadKeeper, SeenHead, thinned
from common.audit_protocol import AuditHead

pytestmark = pytest.mark.anyio


def mac(letter: str) -> str:
    return letter * 64


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test may set."""
    moment = [1_800_000_000.0 // DAY * DAY]
    monkeypatch.setattr("appliance.agent.reports.audit_heads.time.time", lambda: moment[0])
    return moment


def seqs(keeper: AuditHeadKeeper) -> list[int]:
    return [head.seq for head in keeper.heads().heads]


def test_one_an_hour_is_kept_and_later_one_a_day(tmp_path: Path, at: list[float]) -> None:
    keeper = AuditHeadKeeper(tmp_path)
    for seq in range(1, 4 * 24 * 3 + 1):
        keeper.note(f"{seq}:{mac('a')}")
        at[0] += HOUR / 4
    kept = seqs(keeper)
    assert kept[-1] == 4 * 24 * 3
    assert kept[:2] == [96, 192], "the last of each day"
    assert 24 <= len(kept) <= 27


def test_what_the_log_went_back_behind_is_kept_although_it_goes_on(tmp_path: Path, at: list[float]) -> None:
    keeper = AuditHeadKeeper(tmp_path)
    for told in (f"7:{mac('a')}", f"8:{mac('a')}", f"5:{mac('a')}", f"6:{mac('b')}", f"9:{mac('b')}", f"9:{mac('c')}"):
        keeper.note(told)
    assert [(head.seq, head.mac[0]) for head in keeper.heads().heads] == [(8, "a"), (9, "b"), (9, "c")]
    at[0] += 3 * DAY
    keeper.note(f"10:{mac('c')}")
    assert seqs(keeper) == [8, 9, 9, 10]


def test_heads_that_go_to_and_fro_take_no_room_from_what_follows(tmp_path: Path, at: list[float]) -> None:
    keeper = AuditHeadKeeper(tmp_path)
    for _ in range(600):
        keeper.note(f"20:{mac('a')}")
        keeper.note(f"10:{mac('a')}")
        at[0] += 2
    for seq in range(1000, 5001, 1000):
        keeper.note(f"{seq}:{mac('a')}")
        at[0] += DAY
    assert seqs(keeper)[0] == 20
    assert seqs(keeper)[-5:] == [1000, 2000, 3000, 4000, 5000]


@pytest.mark.parametrize("told", ["", "x", "7", f"-1:{mac('a')}", "7:abc", f"7:{mac('g')}"])
def test_what_is_no_head_is_not_kept(tmp_path: Path, told: str) -> None:
    keeper = AuditHeadKeeper(tmp_path)
    keeper.note(told)
    assert seqs(keeper) == []


def test_there_is_an_end_and_ends_of_the_log_are_the_last_to_go() -> None:
    head = AuditHead(seq=1, mac=mac("a"))
    many = [SeenHead(head=head, at=day * DAY, end=day == 0) for day in range(audit_heads.MOST + 9)]
    kept = thinned(many)
    assert len(kept) == audit_heads.MOST
    assert (kept[0].at, kept[1].at, kept[-1].at) == (0, 10 * DAY, many[-1].at)


async def test_the_next_agent_knows_what_this_one_has_seen(tmp_path: Path) -> None:
    keeper = AuditHeadKeeper(tmp_path)
    work = asyncio.create_task(keeper.run())
    keeper.note(f"7:{mac('a')}")
    async with asyncio.timeout(60):
        while not (tmp_path / audit_heads.FILE).exists():  # noqa: ASYNC110 - another thread writes it
            await asyncio.sleep(0.01)
    work.cancel()
    assert seqs(AuditHeadKeeper(tmp_path)) == [7]
    (tmp_path / audit_heads.FILE).write_text("{")
    assert seqs(AuditHeadKeeper(tmp_path)) == []


async def test_a_disk_that_takes_nothing_ends_no_agent(tmp_path: Path) -> None:
    keeper = AuditHeadKeeper(tmp_path / "none")
    work = asyncio.create_task(keeper.run())
    keeper.note(f"7:{mac('a')}")
    await asyncio.sleep(0.05)
    assert not work.done()
    work.cancel()
    assert seqs(keeper) == [7]
