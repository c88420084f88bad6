"""The machines of a Kubernetes cluster, its scheduler, and the controllers that give pods up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from appliance.agent.kubernetes.capacity import NOTHING, asked_by, machine_of
from tests.fakes.kubernetes_store import Key, Object, RefusedError, Store, moment

RESOURCE = "nvidia.com/gpu"
FINAL = ("Succeeded", "Failed")
GRACE_S = 30
PRESSURE = "The node was low on resource: memory."
UNREACHABLE = "node.kubernetes.io/unreachable"


class Machines(Store):
    """Machines that pods are given to.

    Pods with an image of `missing` are never pulled, those with one of `pulling` only after `pulled`; images of `root`
    run as root. Machines of `deaf` do not end pods.
    """

    def __init__(self) -> None:
        """Start without machines."""
        super().__init__()
        self.missing: set[str] = set()
        self.pulling: set[str] = set()
        self.root: set[str] = set()
        self.deaf: set[str] = set()
        self.schedules = True

    def add_node(
        self, name: str, *, cpu: str = "8", memory: str = "32Gi", gpus: int = 0, labels: Mapping[str, str] | None = None
    ) -> None:
        """Add a machine that is ready."""
        allocatable = {"cpu": cpu, "memory": memory, "pods": "110"} | ({RESOURCE: str(gpus)} if gpus else {})
        status = {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"osImage": "Debian GNU/Linux 12"},
        }
        node = {"kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": {}, "status": status}
        self._add("nodes", node)
        self._schedule()

    def change_node(self, name: str, change: Callable[[Object], None]) -> None:
        """Change a machine."""
        self._change("nodes", ("", name), change)
        self._schedule()

    def remove_node(self, name: str) -> None:
        """Take a machine away; its pods stay as they are."""
        self._drop("nodes", ("", name))

    def collect_pods(self) -> None:
        """Let go of the pods of machines that are not there any more, as the garbage collector does."""
        for key, pod in list(self._objects["pods"].items()):
            machine = pod["spec"].get("nodeName")
            if machine and ("", machine) not in self._objects["nodes"]:
                self._change("pods", key, partial(_disrupt, "DeletionByPodGC", "PodGC: node no longer exists"))
                self._change("pods", key, lambda item: item["status"].update(phase="Failed"))
                self._delete_pod(*key, 0)

    def silence(self, name: str) -> None:
        """Let nothing be heard of a machine: it is not ready, tainted, and ends no pods."""
        self.deaf.add(name)

        def lose(node: Object) -> None:
            node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
            node["spec"]["taints"] = [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]

        self._change("nodes", ("", name), lose)
        for key in self._keys_on(name):
            self._change("pods", key, partial(_condition, {"type": "Ready", "status": "False"}))

    def hear(self, name: str) -> None:
        """Let a machine be back: it ends what was deleted meanwhile."""
        self.deaf.discard(name)

        def back(node: Object) -> None:
            node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            node["spec"]["taints"] = []

        self._change("nodes", ("", name), back)
        for key in self._keys_on(name):
            if "deletionTimestamp" in self._pod(*key)["metadata"]:
                self._stop(*key)

    def after_silence(self, name: str, seconds: float) -> None:
        """Give up the pods of a machine that do not tolerate so long a silence, as the taint manager does."""
        for key in self._keys_on(name):
            limits = [
                item.get("tolerationSeconds", float("inf"))
                for item in self._pod(*key)["spec"]["tolerations"]
                if item.get("key") in (None, UNREACHABLE) and item.get("effect") in (None, "NoExecute")
            ]
            if min(limits, default=0) <= seconds:
                self._disturb(key, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")

    def drain(self, name: str) -> None:
        """Clear a machine for maintenance, by evictions."""
        self.change_node(name, lambda node: node["spec"].update(unschedulable=True))
        for key in self._keys_on(name):
            self._disturb(key, "EvictionByEvictionAPI", "Eviction API: evicting")

    def change_pod(self, name: str, change: Callable[[Object], None], namespace: str = "penstock") -> None:
        """Change a pod."""
        self._change("pods", (namespace, name), change)

    def pulled(self, image: str) -> None:
        """Let an image come to its machines."""
        self.pulling.discard(image)
        for (namespace, name), pod in list(self._objects["pods"].items()):
            if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                self._start(namespace, name)

    def finish(self, name: str, code: int = 0, *, reason: str = "", namespace: str = "penstock") -> None:
        """Let the container of a pod end that was asked for; those that others put beside it go on."""
        own = next(status["name"] for status in self._pod(namespace, name)["status"]["containerStatuses"])
        own = "session" if self._has(namespace, name, "session") else own
        self._end(namespace, name, [own], code, reason or ("Completed" if code == 0 else "Error"))
        self._schedule()

    def evict(self, name: str, namespace: str = "penstock", *, own_fault: str = "") -> None:
        """Let a machine throw a pod out without a word of its container: it needs the memory, or by the pod's fault."""

        def throw(pod: Object) -> None:
            pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": own_fault or PRESSURE}
            pod["status"].pop("containerStatuses", None)
            if not own_fault:
                _disrupt("TerminationByKubelet", PRESSURE, pod)

        self._change("pods", (namespace, name), throw)

    def delete(self, name: str, grace_s: int = 0, namespace: str = "penstock") -> None:
        """Delete a pod, as an administrator would."""
        self._delete_pod(namespace, name, grace_s)

    def release(self, name: str, namespace: str = "penstock") -> None:
        """Take the finalizers from a pod; one that is being deleted and has ended is gone then."""
        self._change("pods", (namespace, name), lambda pod: pod["metadata"].pop("finalizers", None))
        pod = self._pod(namespace, name)
        if "deletionTimestamp" in pod["metadata"] and not _lives(pod):
            self._drop("pods", (namespace, name))

    def _delete_pod(self, namespace: str, name: str, grace_s: int) -> Object:
        """Mark a pod; it goes at once by force or without a machine, else when its machine has ended it."""
        pod, key = self._pod(namespace, name), (namespace, name)
        machine = pod["spec"].get("nodeName")
        forced = not grace_s or not machine or not _lives(pod)
        if forced and "finalizers" not in pod["metadata"]:
            self._drop("pods", key)
            self._schedule()
            return pod
        at = (datetime.now(UTC) + timedelta(seconds=grace_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        marks = {"deletionTimestamp": at, "deletionGracePeriodSeconds": 0 if forced else grace_s}
        self._change("pods", key, lambda item: item["metadata"].update(marks))
        if machine and machine not in self.deaf:
            self._stop(*key)
        return pod

    def _stop(self, namespace: str, name: str) -> None:
        """End the containers of a pod that is being deleted, and the pod where nobody holds it."""
        statuses = self._pod(namespace, name)["status"].get("containerStatuses", [])
        self._end(namespace, name, [item["name"] for item in statuses], 137, "Error")
        if "finalizers" not in self._pod(namespace, name)["metadata"]:
            self._drop("pods", (namespace, name))
        self._schedule()

    def _end(self, namespace: str, name: str, containers: Sequence[str], code: int, reason: str) -> None:
        def end(pod: Object) -> None:
            for status in pod["status"].get("containerStatuses", []):
                if status["name"] in containers and "terminated" not in status["state"]:
                    started = status["state"].get("running", {}).get("startedAt", moment())
                    ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": moment()}
                    status["state"] = {"terminated": ended}
            states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
            if all("terminated" in state for state in states):
                failed = any(state["terminated"]["exitCode"] for state in states)
                pod["status"]["phase"] = "Failed" if failed else "Succeeded"

        self._change("pods", (namespace, name), end)

    def _disturb(self, key: Key, reason: str, words: str) -> None:
        self._change("pods", key, partial(_disrupt, reason, words))
        self._delete_pod(*key, GRACE_S)

    def _schedule(self) -> None:
        """Give pods without a machine one, in the order of their creation, and say why others get none."""
        for key, pod in list(self._objects["pods"].items()):
            leaves = "deletionTimestamp" in pod["metadata"]
            if not self.schedules or leaves or pod["spec"].get("nodeName") or not _lives(pod):
                continue
            machine = next(iter(self._fitting(pod)), "")
            if machine:
                self._change("pods", key, partial(_bind, machine))
                self._start(*key)
            elif not pod["status"].get("conditions"):
                words = f"0/{len(self._objects['nodes'])} nodes are available: insufficient resources."
                told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
                self._change("pods", key, partial(_condition, told))

    def _fitting(self, pod: Object) -> Iterator[str]:
        wanted = asked_by(pod, RESOURCE)
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        only = [name for term in terms for field in term["matchFields"] for name in field["values"]]
        for (_, name), node in sorted(self._objects["nodes"].items()):
            held = sum((asked_by(other, RESOURCE) for other in self._on(name)), NOTHING)
            free = machine_of(node, RESOURCE).amount - held
            chosen = pod["spec"].get("nodeSelector", {}).items() <= node["metadata"]["labels"].items()
            open_ = _is_open(node, pod["spec"]["tolerations"])
            if open_ and chosen and (not terms or name in only) and free | wanted == free:
                yield name

    def _on(self, name: str) -> list[Object]:
        return [pod for pod in self._objects["pods"].values() if pod["spec"].get("nodeName") == name and _lives(pod)]

    def _keys_on(self, name: str) -> list[Key]:
        return [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self._on(name)]

    def _start(self, namespace: str, name: str) -> None:
        spec = self._pod(namespace, name)["spec"]
        statuses = [self._status(spec, container) for container in spec["containers"]]
        started = all("running" in status["state"] for status in statuses)
        phase = {"phase": "Running" if started else "Pending", "podIP": "10.1.0.1", "containerStatuses": statuses}
        self._change("pods", (namespace, name), lambda item: item["status"].update(phase))

    def _status(self, spec: Object, container: Object) -> Object:
        image = container["image"]
        user = spec.get("securityContext", {}) | container.get("securityContext", {})
        state: Object = {"running": {"startedAt": moment()}}
        if image in self.pulling:
            state = {"waiting": {"reason": "ContainerCreating"}}
        elif image in self.missing:
            words = f'Back-off pulling image "{image}"'
            state = {"waiting": {"reason": "ImagePullBackOff", "message": words}}
        elif image in self.root and user.get("runAsNonRoot") and not user.get("runAsUser"):
            words = "container has runAsNonRoot and image will run as root"
            state = {"waiting": {"reason": "CreateContainerConfigError", "message": words}}
        digest = f"sha256:{image}" if "running" in state else ""
        return {"name": container["name"], "image": image, "imageID": digest, "state": state}

    def _has(self, namespace: str, name: str, container: str) -> bool:
        return any(item["name"] == container for item in self._pod(namespace, name)["spec"]["containers"])

    def _pod(self, namespace: str, name: str) -> Object:
        try:
            return self._objects["pods"][namespace, name]
        except KeyError:
            raise RefusedError(404, "NotFound", f'pods "{name}" not found') from None


def _lives(pod: Object) -> bool:
    return pod["status"]["phase"] not in FINAL


def _is_open(node: Object, tolerations: Sequence[Object]) -> bool:
    """Return whether pods with these tolerations may go to a machine."""
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions", []))
    barred = [
        taint
        for taint in node["spec"].get("taints", [])
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(item, taint) for item in tolerations)
    ]
    return ready and not barred and not node["spec"].get("unschedulable", False)


def _tolerates(toleration: Object, taint: Object) -> bool:
    fits = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    any_key, any_effect = (
        toleration.get("key") in (None, taint["key"]),
        toleration.get("effect") in (None, taint["effect"]),
    )
    return any_key and any_effect and fits


def _bind(machine: str, pod: Object) -> None:
    pod["spec"]["nodeName"] = machine
    _condition({"type": "PodScheduled", "status": "True"}, pod)


def _disrupt(reason: str, words: str, pod: Object) -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": words}
    _condition(told | {"lastTransitionTime": moment()}, pod)


def _condition(condition: dict[str, str], pod: Object) -> None:
    others = [item for item in pod["status"].get("conditions", []) if item["type"] != condition["type"]]
    pod["status"]["conditions"] = [*others, condition]
