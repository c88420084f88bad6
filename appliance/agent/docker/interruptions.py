"""Interruptions: containers that ended as their machine or their Docker Engine did, by no fault of theirs. Pure."""

from __future__ import annotations

from appliance.agent.docker.inspections import OUT_OF_MEMORY
from common.protocol import ENGINE_RESTARTED, NODE_RESTARTED, ContainerState, ContainerStatus

_UNSEEN, _TERMINATED, _KILLED = 255, 143, 137
"""What Docker says of an end that it has not seen; and of who was told to end, and was made to."""


def by_boot(state: ContainerState, begun: str, boot: str) -> ContainerState:
    """Return the state of a container that was made in the boot `begun` of a machine, as it is found in `boot`.

    One that an earlier agent made does not say when it began.
    """
    if not begun or begun == boot:
        return state
    never_ran = state.status is ContainerStatus.CREATING
    return _lost(state, NODE_RESTARTED) if never_ran or is_forced(state) else state


def by_engine(state: ContainerState) -> ContainerState:
    """Return the state of a container that ended while its Docker Engine did."""
    return _lost(state, ENGINE_RESTARTED) if is_forced(state) else state


def is_forced(state: ContainerState) -> bool:
    """Return whether something from outside may have ended a container, and not for the memory that it took."""
    by_others = state.exit_code in (_UNSEEN, _TERMINATED, _KILLED) and not state.error.startswith(OUT_OF_MEMORY)
    return state.status is ContainerStatus.EXITED and by_others


def _lost(state: ContainerState, reason: str) -> ContainerState:
    told = {"status": ContainerStatus.FAILED, "exit_code": None, "error": reason, "lost": True}
    return state.model_copy(update=told)
