"""How the agent waits for a control API that is away."""

from __future__ import annotations

import pytest

from appliance.agent.heartbeat import MAX_DELAY_S, delay_after


@pytest.mark.parametrize(("failures", "delay_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (7, MAX_DELAY_S), (5000, MAX_DELAY_S)])
def test_waits_longer_with_every_failure_for_ever(failures: int, delay_s: float) -> None:
    assert delay_after(failures) == delay_s
