"""Claims as they are handed on from one decision: nothing that is kept is left out."""

from __future__ import annotations

from api.scheduler.claims import Claim, Claims, Standing
from api.scheduler.snapshot import Placement
from tests.unit.api.scheduler.world import work


def test_a_quota_that_is_kept_beside_soft_places_is_handed_on() -> None:
    workload, claims = work("w", "a", 1), Claims(0)
    soft = Claim(workload, Standing.SOFT, (Placement("n"),))
    quota = Claim(workload, Standing.DEFERRED)
    for claim in (soft, quota):
        claims.add(claim)
    assert claims.every() == (soft, quota)
    again = Claims(0)
    for claim in claims.every():
        again.add(claim)
    assert (again.of(workload), again.deferred("a"), again.every()) == (soft, [quota], (soft, quota))


def test_each_is_handed_on_once() -> None:
    claims = Claims(0)
    claims.add(Claim(work("w", "a", 1), Standing.DEFERRED))
    assert len(claims.every()) == 1
