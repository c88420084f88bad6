"""Ends that came with the node's or its engine's; what ended by itself before that keeps its end."""

from __future__ import annotations

import pytest

from appliance.agent.docker.interruptions import by_boot, by_engine
from common.protocol import ENGINE_RESTARTED, NODE_RESTARTED, ContainerState, ContainerStatus

EXITED = ContainerStatus.EXITED
OUT = "out of memory: the limit is 64 MiB"


def state(status: ContainerStatus, code: int | None = None, error: str = "") -> ContainerState:
    return ContainerState(id="c", session_id="s", status=status, exit_code=code, error=error)


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (state(EXITED, 255), True),
        (state(EXITED, 137, "exit code 137: the program was killed (signal 9)"), True),
        (state(EXITED, 143), True),
        (state(EXITED, 137, OUT), False),
        (state(EXITED, 0), False),
        (state(EXITED, 7), False),
        (state(ContainerStatus.RUNNING), False),
    ],
)
def test_what_was_ended_from_outside_is_lost(found: ContainerState, *, lost: bool) -> None:
    for judged, reason in ((by_boot(found, "b1", "b2"), NODE_RESTARTED), (by_engine(found), ENGINE_RESTARTED)):
        told = (judged.status, judged.exit_code, judged.error, judged.lost)
        expected = (ContainerStatus.FAILED, None, reason, True) if lost else (found.status, found.exit_code)
        assert told[: len(expected)] == expected
    assert by_boot(found, "b1", "b1") == found
    assert by_boot(found, "", "b1") == found, "an agent before has made it"


def test_what_was_made_and_never_started_is_not_started_after_a_boot() -> None:
    """What it needs of the node lay in /run."""
    made = state(ContainerStatus.CREATING)
    assert by_boot(made, "b1", "b2").lost
    assert by_boot(made, "b1", "b1") == by_engine(made) == made
