"""Pods that a cluster took away by no fault of theirs: from machines that are lost, needed or full. Pure.

Newer clusters say so by a condition of the pod, older ones by the reason of its end alone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from appliance.agent.kubernetes.capacity import FINAL_PHASES, Object
from common.protocol import MACHINE_RESTARTED

_TARGET = "DisruptionTarget"
_OF_MACHINES = (
    *("NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity", "UnexpectedAdmissionError"),
)
"""Reasons of pods that a machine did not take, or did not keep."""
_UNSEEN = ("Unknown", "ContainerStatusUnknown")
"""What is told of a container that was there and is not, and of which nobody knows how it ended."""
_NEEDED = ("The node was low on resource", "The node had condition")
"""How a machine begins that ended a pod because others needed something; else the pod went over a limit of its own."""


def loss_of(pod: Object) -> str:
    """Return why a cluster has taken a pod away, or is about to; empty where it has not, or by the pod's own fault."""
    status = pod.get("status", {})
    is_final = status.get("phase") in FINAL_PHASES
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    disrupted = next((item for item in status.get("conditions", []) if item["type"] == _TARGET), None)
    if disrupted and disrupted["status"] == "True" and (is_final or is_leaving(pod)):
        if _ended_before(pod, disrupted.get("lastTransitionTime")):
            return ""
        return str(disrupted.get("message") or disrupted.get("reason", ""))
    by_machine = reason in _OF_MACHINES or reason.startswith("OutOf") or message.startswith(_NEEDED)
    if is_final and by_machine:
        return f"{reason}: {message}"
    return MACHINE_RESTARTED if is_final and not reason and _ended_unseen(status) else ""


def is_leaving(pod: Object) -> bool:
    """Return whether somebody has told the cluster to delete a pod."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def has_ended(pod: Object) -> bool:
    """Return whether nothing of a pod runs that is being deleted, whoever may hold the object itself yet."""
    status = pod.get("status", {})
    states = [item["state"] for item in status.get("containerStatuses", [])]
    ended = bool(states) and all("terminated" in state for state in states)
    placed = bool(pod["spec"].get("nodeName"))
    return is_leaving(pod) and (not placed or status.get("phase") in FINAL_PHASES or ended)


def _ended_unseen(status: Any) -> bool:
    """Return whether no machine saw the end of a container: it restarted meanwhile."""
    ends = (item["state"].get("terminated", {}) for item in status.get("containerStatuses", []))
    return any(end.get("reason") in _UNSEEN for end in ends)


def _ended_before(pod: Object, at: Any) -> bool:
    """Return whether a pod had come to its end before the cluster wanted it away."""
    ends = [
        item["state"]["terminated"].get("finishedAt")
        for item in pod.get("status", {}).get("containerStatuses", [])
        if "terminated" in item["state"]
    ]
    times = [datetime.fromisoformat(end) for end in ends if end]
    return bool(times and at) and max(times) < datetime.fromisoformat(str(at))
