"""What a Kubernetes API server asks of a pod before it takes it: its fields, and the profiles of Pod Security.

The checks and their words are those of the API reference and of "Pod Security Standards".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from appliance.agent.kubernetes import quantity
from tests.fakes.kubernetes_store import Object, RefusedError

LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
QUALIFIED = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NATIVE = ("cpu", "memory", "ephemeral-storage")
SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
CORE_VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
)
BASELINE_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
FIELDS: Mapping[str, Collection[str]] = {
    "": ("apiVersion", "kind", "metadata", "spec"),
    "metadata": ("name", "namespace", "labels", "annotations", "finalizers"),
    "spec": (
        *("containers", "initContainers", "volumes", "restartPolicy", "hostname", "nodeSelector", "affinity"),
        *("tolerations", "runtimeClassName", "priorityClassName", "schedulerName", "imagePullSecrets", "dnsPolicy"),
        *("dnsConfig", "hostAliases", "hostUsers", "securityContext", "automountServiceAccountToken"),
        *("enableServiceLinks", "hostNetwork", "hostPID", "hostIPC", "serviceAccountName"),
    ),
    "spec.securityContext": (
        *("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups"),
        *("seccompProfile", "sysctls", "seLinuxOptions"),
    ),
    "container": (
        *("name", "image", "imagePullPolicy", "command", "args", "env", "ports", "resources", "volumeMounts"),
        *("securityContext", "restartPolicy"),
    ),
    "container.securityContext": (
        *("allowPrivilegeEscalation", "capabilities", "privileged", "runAsNonRoot", "runAsUser", "runAsGroup"),
        *("seccompProfile", "procMount", "readOnlyRootFilesystem"),
    ),
}


def default(pod: Object) -> None:
    """Add what the server adds where nothing is said."""
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    tolerations = spec.setdefault("tolerations", [])
    for key in SILENT:
        if not any(
            item.get("key") in (None, key) and item.get("effect") in (None, "NoExecute") for item in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def check_fields(pod: Object, runtime_classes: Collection[str]) -> None:
    """Refuse a pod that is none: 400 for unknown fields, 422 with all causes, 403 for a class that is not there."""
    if unknown := [*_unknown(pod)]:
        words = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise RefusedError(400, "BadRequest", f"strict decoding error: {words}")
    name = pod["metadata"]["name"]
    wanted = pod["spec"].get("runtimeClassName")
    if wanted is not None and wanted not in runtime_classes:
        raise RefusedError(
            403, "Forbidden", f'pods "{name}" is forbidden: pod rejected: RuntimeClass "{wanted}" not found'
        )
    if causes := [*_metadata(pod["metadata"]), *_spec(pod["spec"])]:
        listed = [{"reason": "FieldValueInvalid", "field": field, "message": why} for field, why in causes]
        text = ", ".join(f"{field}: {why}" for field, why in causes)
        words = f'Pod "{name}" is invalid: {text if len(causes) == 1 else f"[{text}]"}'
        raise RefusedError(422, "Invalid", words, details={"name": name, "kind": "Pod", "causes": listed})


def check_security(pod: Object, labels: Mapping[str, str]) -> None:
    """Refuse a pod that the profile which its namespace enforces does not admit."""
    profile = labels.get("pod-security.kubernetes.io/enforce", "privileged")
    found = [] if profile == "privileged" else [*_baseline(pod["spec"])]
    found += [*_restricted(pod["spec"])] if profile == "restricted" else []
    if found:
        name = pod["metadata"]["name"]
        words = f'pods "{name}" is forbidden: violates PodSecurity "{profile}:latest": {", ".join(found)}'
        raise RefusedError(403, "Forbidden", words, details={"name": name, "kind": "pods"})


def _unknown(pod: Object) -> Iterator[str]:
    parts = {"": [pod], "metadata": [pod["metadata"]], "spec": [pod["spec"]]}
    parts["spec.securityContext"] = [pod["spec"].get("securityContext", {})]
    parts["container"] = _containers(pod["spec"])
    parts["container.securityContext"] = [item.get("securityContext", {}) for item in parts["container"]]
    for path, items in parts.items():
        for item in items:
            yield from (f"{path}.{field}".lstrip(".") for field in item if field not in FIELDS[path])


def _metadata(metadata: Object) -> Iterator[tuple[str, str]]:
    if not NAME.fullmatch(metadata["name"]):
        yield "metadata.name", f'Invalid value: "{metadata["name"]}"'
    for part in ("labels", "annotations"):
        for name, value in metadata.get(part, {}).items():
            if not QUALIFIED.fullmatch(name):
                yield f"metadata.{part}", f'Invalid value: "{name}"'
            if part == "labels" and not LABEL.fullmatch(value):
                yield "metadata.labels", f'Invalid value: "{value}"'


def _spec(spec: Object) -> Iterator[tuple[str, str]]:
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    if len(set(volumes)) < len(volumes):
        yield "spec.volumes", "Duplicate value"
    if not DNS_LABEL.fullmatch(spec.get("hostname", "a")):
        yield "spec.hostname", f'Invalid value: "{spec["hostname"]}"'
    for index, item in enumerate(spec["tolerations"]):
        path = f"spec.tolerations[{index}]"
        if not item.get("key") and item.get("operator") != "Exists":
            yield f"{path}.operator", "Invalid value: operator must be Exists when `key` is empty"
        if item.get("operator") == "Exists" and item.get("value"):
            yield f"{path}.operator", "Invalid value: value must be empty when `operator` is 'Exists'"
        if "tolerationSeconds" in item and item.get("effect") != "NoExecute":
            yield f"{path}.effect", "Invalid value: effect must be 'NoExecute' when `tolerationSeconds` is set"
    for index, container in enumerate(spec["containers"]):
        for field, why in _container(container, volumes):
            yield f"spec.containers[{index}].{field}", why


def _container(container: Object, volumes: Collection[str]) -> Iterator[tuple[str, str]]:
    if not container.get("image"):
        yield "image", "Required value"
    targets = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
    if len(set(targets)) < len(targets):
        yield "volumeMounts", "must be unique"
    for index, mount in enumerate(container.get("volumeMounts", [])):
        if mount["name"] not in volumes:
            yield f"volumeMounts[{index}].name", f'Not found: "{mount["name"]}"'
    resources = container.get("resources", {})
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, asked in requests.items():
        limit = quantity.parse(limits[name]) if name in limits else None
        if limit is not None and quantity.parse(asked) > limit:
            yield f"resources.requests[{name}]", f'Invalid value: "{asked}": must be less than or equal to {name} limit'
        if name not in NATIVE and (limit is None or quantity.parse(asked) != limit):
            yield f"resources.limits[{name}]", "Required value: Limit must be set for non overcommitable resources"


def _baseline(spec: Object) -> Iterator[str]:
    if shared := [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]:
        yield f"host namespaces ({', '.join(shared)})"
    if paths := [volume["name"] for volume in spec.get("volumes", []) if "hostPath" in volume]:
        yield f"hostPath volumes (volumes {_quoted(paths)})"
    wrongs: Mapping[str, Callable[[Object], object]] = {
        "privileged ({} must not set securityContext.privileged=true)": lambda own: own.get("privileged"),
        "non-default capabilities ({} must not add more)": lambda own: (
            set(own.get("capabilities", {}).get("add", ())) - set(BASELINE_CAPABILITIES)
        ),
        "seccompProfile ({} must not be Unconfined)": lambda own: _seccomp(own) == "Unconfined",
    }
    for words, wrong in wrongs.items():
        if names := [item["name"] for item in _containers(spec) if wrong(item.get("securityContext", {}))]:
            yield words.format(f"containers {_quoted(names)}")
    if _seccomp(spec.get("securityContext", {})) == "Unconfined":
        yield "seccompProfile (pod must not be Unconfined)"


def _restricted(spec: Object) -> Iterator[str]:
    pod = spec.get("securityContext", {})
    if wrong := [item["name"] for item in spec.get("volumes", []) if not set(item) & set(CORE_VOLUMES)]:
        yield f"restricted volume types (volumes {_quoted(wrong)} use a restricted volume type)"
    rights: Mapping[str, Callable[[Object], bool]] = {
        "allowPrivilegeEscalation != false ({} must set securityContext.allowPrivilegeEscalation=false)": (
            lambda own: own.get("allowPrivilegeEscalation") is False
        ),
        'unrestricted capabilities ({} must set securityContext.capabilities.drop=["ALL"])': lambda own: (
            "ALL" in own.get("capabilities", {}).get("drop", ())
            and set(own["capabilities"].get("add", ())) <= {"NET_BIND_SERVICE"}
        ),
        "runAsNonRoot != true (pod or {} must set securityContext.runAsNonRoot=true)": (
            lambda own: own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True
        ),
        "runAsUser=0 ({} must not set runAsUser=0)": lambda own: own.get("runAsUser", pod.get("runAsUser")) != 0,
        'seccompProfile (pod or {} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")': (
            lambda own: (_seccomp(own) or _seccomp(pod)) in ("RuntimeDefault", "Localhost")
        ),
    }
    for words, right in rights.items():
        if names := [item["name"] for item in _containers(spec) if not right(item.get("securityContext", {}))]:
            yield words.format(f"containers {_quoted(names)}")


def _seccomp(context: Object) -> Any:
    return context.get("seccompProfile", {}).get("type")


def _containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def _quoted(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
