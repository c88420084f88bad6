"""Interruptions: containers that ended as their machine or their Docker Engine did, by no fault of theirs. Pure."""

from __future__ import annotations

from appliance.agent.docker.inspections import Inspection, label_values
from common.protocol import ENGINE_RESTARTED, NODE_RESTARTED, ContainerState, ContainerStatus

_UNSEEN, _TERMINATED, _KILLED = 255, 143, 137
"""What Docker says of an end that it has not seen; and of who was told to end, and was made to."""


def judge(state: ContainerState, inspection: Inspection, boot: str, *, engine_left: bool) -> ContainerState:
    """Return the state of a container as it is found, which is lost where its end was an interruption.

    `boot` is that of the machine now; `engine_left` says that it ran when Docker went away.
    """
    begun = label_values(inspection).boot
    if begun and begun != boot and (state.status is ContainerStatus.CREATING or _was_ended(state, inspection)):
        return _lost(state, NODE_RESTARTED)
    if engine_left and _was_ended(state, inspection):
        return _lost(state, ENGINE_RESTARTED)
    return state


def _was_ended(state: ContainerState, inspection: Inspection) -> bool:
    """Return whether something from outside ended a container, and not for the memory that it took."""
    by_others = state.exit_code in (_UNSEEN, _TERMINATED, _KILLED) and not inspection["State"].get("OOMKilled")
    return state.status is ContainerStatus.EXITED and by_others


def _lost(state: ContainerState, reason: str) -> ContainerState:
    told = {"status": ContainerStatus.FAILED, "exit_code": None, "error": reason, "lost": True}
    return state.model_copy(update=told)
