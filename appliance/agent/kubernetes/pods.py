"""Containers of sessions as pods of Kubernetes, there and back. Pure: nothing here talks to a cluster.

Labels and annotations are the only memory of the agent: whatever it must know after a restart stands in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any

from pydantic import TypeAdapter

from appliance.agent import admission, environment
from appliance.agent.environment import NVIDIA_VISIBLE_DEVICES
from appliance.agent.kubernetes import pod_frame, pools
from appliance.agent.kubernetes.capacity import FINAL_PHASES, Object
from appliance.agent.kubernetes.pod_settings import FolderClaim, PodSettings
from appliance.agent.labels import (
    LABEL_DIGEST,
    LABEL_GPUS,
    LABEL_ID,
    LABEL_PORTS,
    LABEL_PROJECT,
    LABEL_SESSION,
    LABEL_SESSION_NAME,
    LABEL_USER,
    PREFIX,
    digest_of,
    name_of,
)
from common import image_references
from common.errors import InputError, Problem
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, Mount, Pull

CONTAINER = "session"
"""Name of the only container of a pod."""
SITE = "site"
"""Name of the volume with what a container sees of its site."""
_TRIED_AGAIN = "ErrImagePull"
NO_IMAGE = {
    "InvalidImageName": "the name of its image is not valid",
    "ErrImageNeverPull": "its image is not on the machine, and it was asked not to pull it",
    _TRIED_AGAIN: "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
}
"""What an image lacks. What the machine says of it stays in the cluster: it may speak of addresses that only that one
reaches."""
_NEVER_STARTS = {
    "CreateContainerConfigError": "the cluster cannot make its container",
    "CreateContainerError": "the cluster cannot make its container",
    "RunContainerError": "its container does not start",
}
"""Reasons for which the container of a pod will never run, as long as nobody changes the cluster."""
_PHASES = {
    "Running": ContainerStatus.RUNNING,
    "Succeeded": ContainerStatus.EXITED,
    "Failed": ContainerStatus.FAILED,
}
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""What reading a pod raises that is not as we made it, or as a cluster should tell it."""
_gpu_shares = TypeAdapter(list[GpuShare])
_ports = TypeAdapter(list[int])


def check(spec: ContainerSpec, pod_settings: PodSettings) -> None:
    """Refuse what a cluster can never run, with every reason; raises InputError."""
    if problems := [*_shares(spec), *_mounts(spec, pod_settings), *_missing(spec), *_image(spec, pod_settings)]:
        raise InputError.of(problems)


def manifest(
    spec: ContainerSpec, pod_settings: PodSettings, machine: str, hosts: Mapping[str, IPv4Address] | None = None
) -> dict[str, Any]:
    """Return the pod of a spec that was checked; one with GPUs is held to the `machine` that has them.

    It knows the names of the site's `hosts`.
    """
    volumes = [
        _volume(position, mount, claim)
        for position, mount in enumerate(spec.mounts)
        if (claim := _claim(PurePosixPath(mount.source), pod_settings))
    ]
    files = {PurePosixPath(path).name: path for path in pod_settings.site_files}
    amount = _limits(spec, pod_settings)
    container = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "Never" if spec.pull is Pull.NEVER else "IfNotPresent",
        # both sides mean the same: a command of our own also drops the image's arguments
        **({"command": _literal(spec.command)} if spec.command is not None else {}),
        **({"args": _literal(spec.args)} if spec.args else {}),
        "env": [{"name": name, "value": _escaped(value)} for name, value in sorted(_environment(spec).items())],
        "ports": [{"containerPort": port} for port in spec.ports],
        "resources": {
            "limits": amount | (_disk(spec.disk_mib) if spec.disk_mib else {}),
            # nobody counts the disks of machines
            "requests": amount | (_disk(0) if spec.disk_mib else {}),
        },
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            *(mounted for _, mounted in volumes),
            *({"name": SITE, "mountPath": path, "subPath": name, "readOnly": True} for name, path in files.items()),
        ],
    }
    metadata = {
        "name": name_of(spec.id),
        "labels": {LABEL_ID: spec.id, LABEL_SESSION: spec.session_id, LABEL_PROJECT: spec.project},
        "annotations": {
            LABEL_SESSION_NAME: spec.session_name,
            LABEL_USER: spec.user,
            LABEL_GPUS: json.dumps([asdict(share) for share in spec.gpus]),
            LABEL_PORTS: json.dumps(spec.ports),
            LABEL_DIGEST: digest_of(spec),
            **{f"{PREFIX}{name}": pod_settings.site_files[path] for name, path in files.items()},
        },
    }
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shm_mib}Mi"}}
    own = {
        "hostname": spec.session_name,
        "volumes": [shm, *(volume for volume, _ in volumes), *([_site(files)] if files else [])],
        **({"hostAliases": aliases} if (aliases := _aliases(pod_settings, hosts or {})) else {}),
        **(_placing(pod_settings, machine) if spec.gpus else {}),
    }
    return pod_frame.pod(pod_settings, metadata, own, container)


def state_of(pod: Object, loss: str = "") -> ContainerState:
    """Return the state of the container of a pod of ours; that of a pod that cannot be read has a warning.

    One that the cluster took away has the `loss` as its error.
    """
    try:
        return _state_of(pod, loss)
    except UNREADABLE as error:
        why, _, _ = str(error).partition("\n")
        return ContainerState(
            id=id_of(pod),
            session_id=pod["metadata"]["labels"].get(LABEL_SESSION, ""),
            status=_PHASES.get(pod.get("status", {}).get("phase", ""), ContainerStatus.CREATING),
            gpus=readable_shares(pod) or [],
            warning=f"its pod cannot be read ({why}): somebody has changed it",
        )


def _state_of(pod: Object, loss: str) -> ContainerState:
    status = pod.get("status", {})
    gpu_shares, _ = shares_of(pod), ports_of(pod)
    found = {"id": id_of(pod), "session_id": pod["metadata"]["labels"][LABEL_SESSION], "gpus": gpu_shares}
    found["enforcement"] = Enforcement.NONE if gpu_shares else None
    if loss:
        return ContainerState.model_validate(found | {"status": ContainerStatus.FAILED, "error": loss, "lost": True})
    told = [item["state"] for item in status.get("containerStatuses", []) if item["name"] == CONTAINER]
    detail: Object = told[0] if told else {}
    return ContainerState.model_validate(found | _progress(pod, status, detail))


def container_of(pod: Object) -> Object:
    """Return the session's own container, which others may stand beside; an empty one where it is not there."""
    return next((item for item in pod["spec"]["containers"] if item["name"] == CONTAINER), {})


def is_placed(pod: Object) -> bool:
    """Return whether a pod has a machine, or has come to its end without one."""
    return bool(pod["spec"].get("nodeName")) or pod.get("status", {}).get("phase") in FINAL_PHASES


def why_unplaced(pod: Object) -> str:
    """Return why the cluster's scheduler has no machine for a pod; empty where it has not said so."""
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason", ""))
    return ""


def runs_as_root(state: Object) -> bool:
    """Return whether a machine does not start a container because its image runs as root, or as nobody knows who."""
    waiting = state.get("waiting", {})
    return waiting.get("reason") == "CreateContainerConfigError" and "runAsNonRoot" in waiting.get("message", "")


def id_of(pod: Object) -> str:
    """Return the id of the container of a pod of ours."""
    return str(pod["metadata"]["labels"][LABEL_ID])


def digest_label(pod: Object) -> str:
    """Return the digest of the spec that a pod was made from; empty where it is not one of ours."""
    return str(pod["metadata"].get("annotations", {}).get(LABEL_DIGEST, ""))


def shares_of(pod: Object) -> list[GpuShare]:
    """Return the places for GPUs that a pod of ours was given."""
    return _gpu_shares.validate_json(pod["metadata"]["annotations"][LABEL_GPUS])


def readable_shares(pod: Object) -> list[GpuShare] | None:
    """Return the places for GPUs that a pod of ours was given; None where nobody can tell."""
    try:
        return shares_of(pod)
    except UNREADABLE:
        return None


def ports_of(pod: Object) -> list[int]:
    """Return the ports of a pod of ours that the edge may reach."""
    return _ports.validate_json(pod["metadata"]["annotations"][LABEL_PORTS])


def address_of(pod: Object) -> str:
    """Return the address of a pod that runs; empty for others."""
    status = pod.get("status", {})
    return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""


def _progress(pod: Object, status: Object, detail: Object) -> dict[str, Any]:
    """Return status, exit code, reason and times."""
    if ended := detail.get("terminated"):
        return _end(pod, status, ended)
    if status.get("phase") in FINAL_PHASES:
        # the machine ended it before, or without, telling of its container
        reason = f"{status.get('reason') or status['phase']}: {status.get('message') or 'the cluster ended it'}"
        return {"status": ContainerStatus.FAILED, "error": reason}
    if running := detail.get("running"):
        found: dict[str, Any] = {"status": ContainerStatus.RUNNING, "started_at": _time(running.get("startedAt"))}
        if pod["metadata"].get("deletionTimestamp"):
            found["warning"] = "somebody has told the cluster to delete it"
        return found
    waiting = detail.get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in NO_IMAGE and reason != _TRIED_AGAIN:
        return {"status": ContainerStatus.FAILED, "error": NO_IMAGE[reason]}
    if reason in _NEVER_STARTS:
        return {"status": ContainerStatus.FAILED, "error": f"{_NEVER_STARTS[reason]}: {message or reason}"}
    # a machine does not tell pulling from creating; what may take long gets the time that pulling may take
    pulls = is_placed(pod) and _pulls(pod)
    begun = ContainerStatus.PULLING if pulls else ContainerStatus.CREATING
    return {"status": begun, "warning": NO_IMAGE.get(reason, "")}


def _end(pod: Object, status: Object, ended: Object) -> dict[str, Any]:
    code, reason, message = int(ended["exitCode"]), ended.get("reason", ""), ended.get("message", "")
    times = {"started_at": _time(ended.get("startedAt")), "finished_at": _time(ended.get("finishedAt"))}
    if reason == "OOMKilled":
        limit = container_of(pod).get("resources", {}).get("limits", {}).get("memory")
        message = f"out of memory: {f'the limit is {limit}' if limit else 'its machine has no more'}"
    elif status.get("reason"):
        message = f"{status['reason']}: {status.get('message', '')}"
    if reason in ("ContainerCannotRun", "StartError", "ContainerStatusUnknown"):
        return {"status": ContainerStatus.FAILED, "exit_code": code, "error": message or reason, **times}
    return {"status": ContainerStatus.EXITED, "exit_code": code, "error": message, **times}


def _pulls(pod: Object) -> bool:
    return bool(container_of(pod).get("imagePullPolicy") != "Never")


def _shares(spec: ContainerSpec) -> Iterable[Problem]:
    for position, share in enumerate(spec.gpus):
        if share.milli != 1000:
            yield Problem(
                f"gpus.{position}.milli",
                "Kubernetes gives whole GPUs only, so a cluster of it holds no share of one",
                "ask for whole GPUs, or use a resource group without the cluster",
            )


def _mounts(spec: ContainerSpec, pod_settings: PodSettings) -> Iterable[Problem]:
    for position, mount in enumerate(spec.mounts):
        source = PurePosixPath(mount.source)
        if ".." in source.parts or not _claim(source, pod_settings):
            claims = ", ".join(f"{claim.root} by the claim {claim.name}" for claim in pod_settings.claims) or "none"
            yield Problem(
                f"mounts.{position}.source",
                f"{mount.source} is a folder of the workers that the cluster does not have (it has {claims})",
                "use a PVC, or let the administrator map it to a claim of the cluster",
            )
        yield from admission.hidden_system(position, mount)


def _missing(spec: ContainerSpec) -> Iterable[Problem]:
    hint = "use a resource group without the cluster"
    if spec.sandbox is not None:
        yield Problem("sandbox", "a Kubernetes cluster does not hold the sandboxes of sessions", hint)
    if spec.network is not None:
        reason = "a Kubernetes cluster does not have the networks between the containers of a session"
        yield Problem("network", reason, f"ask for one container, or {hint}")


def _image(spec: ContainerSpec, pod_settings: PodSettings) -> Iterable[Problem]:
    # nobody knows which images the machines have
    if spec.pull is not Pull.NEVER:
        try:
            image_references.check_registry(spec.image, pod_settings.registries)
        except InputError as error:
            yield from error.problems


def _claim(source: PurePosixPath, pod_settings: PodSettings) -> FolderClaim | None:
    fitting = [claim for claim in pod_settings.claims if source.is_relative_to(claim.root)]
    return max(fitting, key=lambda claim: len(claim.root.parts), default=None)


def _volume(position: int, mount: Mount, claim: FolderClaim) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the volume of a mount that lies in a claim, and how the container has it."""
    name, inside = f"mount-{position}", PurePosixPath(mount.source).relative_to(claim.root)
    mounted: dict[str, Any] = {"name": name, "mountPath": mount.target, "readOnly": mount.read_only}
    if inside.parts:
        mounted["subPath"] = str(inside)
    return {"name": name, "persistentVolumeClaim": {"claimName": claim.name}}, mounted


def _site(files: Iterable[str]) -> dict[str, Any]:
    """Return the volume with the site's files: annotations of the pod, for which the agent needs no other right."""
    items = [{"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{PREFIX}{name}']"}} for name in files]
    return {"name": SITE, "downwardAPI": {"items": items}}


def _aliases(pod_settings: PodSettings, hosts: Mapping[str, IPv4Address]) -> list[dict[str, Any]]:
    """Return the names that a pod knows; those of the site's template come first."""
    said = pod_settings.template.spec.host_aliases or []
    known = [alias.model_dump(mode="json") for alias in said]
    return [*known, *({"ip": str(address), "hostnames": [name]} for name, address in sorted(hosts.items()))]


def _limits(spec: ContainerSpec, pod_settings: PodSettings) -> dict[str, str]:
    limits = {}
    if spec.cpu_milli:
        limits["cpu"] = f"{spec.cpu_milli}m"
    if spec.memory_mib:
        limits["memory"] = f"{spec.memory_mib}Mi"
    if spec.gpus:
        limits[pod_settings.resource] = str(len(spec.gpus))
    return limits


def _disk(mib: int) -> dict[str, str]:
    return {"ephemeral-storage": f"{mib}Mi"}


def _environment(spec: ContainerSpec) -> Mapping[str, str]:
    theirs = {name: value for name, value in spec.environment.items() if name != NVIDIA_VISIBLE_DEVICES}
    # whom the cluster gives GPUs, it tells them; an image for GPUs would take all where it is told nothing
    hidden = {} if spec.gpus else {NVIDIA_VISIBLE_DEVICES: "void"}
    return {**environment.threads(spec.cpu_milli), **theirs, **environment.identity(spec), **hidden}


def _literal(words: Iterable[str]) -> list[str]:
    return [_escaped(word) for word in words]


def _escaped(text: str) -> str:
    # a cluster puts variables in the place of $(NAME), and one $ in the place of two
    return text.replace("$", "$$")


def _placing(pod_settings: PodSettings, machine: str) -> dict[str, Any]:
    tolerations = [{"key": pod_settings.resource, "operator": "Exists", "effect": "NoSchedule"}]
    if selector := pools.selector_of(machine, pod_settings.pools):
        return {"nodeSelector": selector, "tolerations": tolerations}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [machine]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
        "tolerations": tolerations,
    }


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
