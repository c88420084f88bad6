"""Parts that every pod of ours has by the site's settings, whatever it is for: rights, placement, template. Pure.

Its shape is what the profile "restricted" of Kubernetes' Pod Security admits, or "baseline" where the site says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance.agent.kubernetes.pod_settings import PodSettings
from common.settings.kubernetes import PodSecurity
from common.settings.pod_template import Toleration

Part = Mapping[str, Any]

LABEL_NODE = "io.penstock.node"
"""Which Penstock node a pod belongs to: several may stand for parts of one cluster."""
_SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of machines of which nothing is heard."""


def pod(pod_settings: PodSettings, metadata: Part, spec: Part, container: Part) -> dict[str, Any]:
    """Return a pod with one container. What the agent says of it wins over the site's template."""
    template = pod_settings.template.model_dump(mode="json", exclude_none=True)
    labels = {"app.kubernetes.io/managed-by": "penstock", LABEL_NODE: pod_settings.node}
    annotations = template["metadata"]["annotations"] | metadata.get("annotations", {})
    own = {
        "restartPolicy": "Never",
        # a session is no client of the cluster
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _user(pod_settings, template["spec"].get("securityContext", {})),
        "containers": [{**container, "securityContext": _rights(pod_settings)}],
        "tolerations": [*_tolerations(pod_settings), *spec.get("tolerations", [])],
    }
    own |= {"nodeSelector": dict(pod_settings.machines)} if pod_settings.machines else {}
    own |= {"runtimeClassName": pod_settings.runtime_class} if pod_settings.runtime_class else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "labels": template["metadata"]["labels"] | labels | metadata.get("labels", {}),
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": template["spec"] | spec | own,
    }


def _user(pod_settings: PodSettings, said: Part) -> dict[str, Any]:
    user = {"runAsUser": pod_settings.run_as, "runAsGroup": pod_settings.run_as} if pod_settings.run_as else {}
    never_root = {"runAsNonRoot": True} if pod_settings.pod_security is PodSecurity.RESTRICTED else {}
    return {"seccompProfile": {"type": "RuntimeDefault"}, **said, **never_root, **user}


def _rights(pod_settings: PodSettings) -> dict[str, Any]:
    # an image that runs as root expects what Docker gives it: to change owners, to bind low ports
    dropped = "ALL" if pod_settings.pod_security is PodSecurity.RESTRICTED else "NET_RAW"
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": [dropped]}}


def _tolerations(pod_settings: PodSettings) -> list[dict[str, Any]]:
    # the cluster ends pods of such machines when this is over, and says that they were lost
    silent = [
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=pod_settings.lost_s)
        for key in _SILENT
        if not any(item.tolerates(key, "", "NoExecute") for item in pod_settings.tolerations)
    ]
    tolerations = [*pod_settings.tolerations, *silent]
    return [item.model_dump(mode="json", exclude_none=True, exclude_defaults=True) for item in tolerations]
