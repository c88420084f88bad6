"""Pods of a cluster, ours and others': what each of them holds of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.agent.kubernetes import pods
from appliance.agent.kubernetes.capacity import FINAL_PHASES, NOTHING, Object, Occupant, asked_by, asked_for
from appliance.agent.kubernetes.pod_frame import LABEL_NODE
from appliance.agent.labels import LABEL_ID


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the cluster: what its containers hold, and the whole of it where it is ours."""

    occupants: tuple[Occupant, ...]
    own: Object | None = None


def is_ours(pod: Object, namespace: str, node: str) -> bool:
    """Return whether a pod is one of the sessions of a node in a namespace."""
    labels: Mapping[str, Any] = pod["metadata"].get("labels", {})
    return (
        pod["metadata"]["namespace"] == namespace
        and labels.get(LABEL_NODE) == node
        and LABEL_ID in labels
        # without what else we write it was made by somebody else
        and bool(pods.digest_label(pod))
    )


def read(pod: Object, resource: str, *, ours: bool) -> Pod | None:
    """Return what a pod holds of its machine; None where it is not ours, and holds nothing."""
    machine = pod["spec"].get("nodeName", "")
    lives = pod.get("status", {}).get("phase") not in FINAL_PHASES
    if not ours and not (lives and machine):
        return None
    amount = asked_by(pod, resource) if lives else NOTHING
    held = pods.readable_shares(pod) if ours and lives else []
    # whose places nobody knows counts as somebody else's: they are not given away
    if not ours or held is None:
        return Pod((Occupant(machine, amount),), pod if ours else None)
    asked = asked_for(pods.container_of(pod), resource) if lives else NOTHING
    own = Occupant(machine, asked, ours=True, places=tuple(share.uuid for share in held))
    # what the cluster puts beside a session is not the session's
    return Pod((own, Occupant(machine, amount - asked)), pod)
