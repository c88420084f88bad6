"""The kinds of enforcement, by their strength."""

from __future__ import annotations

from common.gpu.kinds import Enforcement


def test_kinds_are_compared_by_how_well_they_hold() -> None:
    assert Enforcement.DRIVER.rank < Enforcement.MIG.rank < Enforcement.SHIM.rank
    assert Enforcement.SHIM.rank < Enforcement.MPS.rank < Enforcement.NONE.rank


def test_several_kinds_hold_no_better_than_the_weakest() -> None:
    assert Enforcement.weakest([Enforcement.MIG, Enforcement.MPS, Enforcement.DRIVER]) is Enforcement.MPS
    assert Enforcement.weakest([]) is Enforcement.NONE
