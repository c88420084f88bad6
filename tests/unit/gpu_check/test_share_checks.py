"""Rows on a card: beside shares it is told what a program with several streams has without neighbours and library."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu import share_checks
from tests.gpu.rows import EVEN, ON_TWO_STREAMS
from tests.gpu.share_checks import Got


class Idle:
    """A card without programs."""

    quick = False

    def end_programs(self) -> None:
        pass


def together(alone: float, began: list[Any]) -> type:
    """Programs of which one that is alone has so many per cent of the time, and all others their share."""

    class Computing:
        def __init__(self, _card: Idle, tenants: list[tuple[int, Any, int]], *, bare: bool = False) -> None:
            self.tenants, self.bare = tenants, bare
            began.append((bare, [work for _, work, _ in tenants]))

        def begin(self) -> None:
            pass

        def judge(self, _seconds: float) -> list[Got]:
            parts = [alone] if self.bare else [milli / 10 for milli, _, _ in self.tenants]
            return [Got(part, part, 1.0, 1.0) for part in parts]

    return Computing


def test_what_a_program_on_streams_has_alone_and_without_the_library_is_told_and_its_share_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began: list[Any] = []
    monkeypatch.setattr(share_checks, "Together", together(17.0, began))
    alone, share, *_ = share_checks.row("long kernels on two streams", Idle())  # type: ignore[arg-type]
    assert began == [(True, [ON_TWO_STREAMS]), (False, [ON_TWO_STREAMS, EVEN])]
    assert (alone.name, alone.got, alone.wanted) == ("such a program, alone and without the library", 17.0, None)
    assert (share.name, share.got) == ("tenant 1 of 30 %: part while it has work", 30.0)


def test_work_on_one_stream_needs_no_look_at_the_card_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[Any] = []
    monkeypatch.setattr(share_checks, "Together", together(0.0, began))
    share_checks.row("a tenth beside training", Idle())  # type: ignore[arg-type]
    assert [bare for bare, _ in began] == [False]
