"""A Kubernetes cluster as its interface shows it: objects with versions, watches, a scheduler that counts, machines.

What it answers was compared with a real API server where that can be (`kube-apiserver`, without machines). It needs
no sockets: `handle` answers httpx's requests, so `httpx.MockTransport` may stand before it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx

from appliance.agent.kubernetes.capacity import NOTHING, asked_by, machine_of

Object = dict[str, Any]

RESOURCE = "nvidia.com/gpu"
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
FINAL = ("Succeeded", "Failed")
POD = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods(/(?P<name>[^/]+)(/(?P<part>log|exec))?)?")


class RefusedError(Exception):
    """An answer that is no success: a Status of Kubernetes."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        """Say which."""
        super().__init__(message)
        self.code = code
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
        self.body = body | {"reason": reason, "message": message}


class FakeKubernetes:
    """One cluster. `token` opens it; while it is `away` nobody gets an answer.

    Pods with an image of `missing` are never pulled, those with one of `pulling` only after `pulled`. Machines of
    `deaf` do not end pods. `denied` verbs are refused as if the role lacked them. `most_pods` is a quota.
    """

    def __init__(self) -> None:
        """Start without nodes."""
        self.token = "secret"
        self.away = False
        self.missing: set[str] = set()
        self.pulling: set[str] = set()
        self.deaf: set[str] = set()
        self.denied: set[str] = set()
        self.most_pods: int | None = None
        self.schedules = True
        self.written: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self._objects: dict[str, dict[tuple[str, str], Object]] = {"nodes": {}, "pods": {}}
        self._history: list[tuple[int, str, str, Object]] = []
        self._version = 1
        self._oldest = 0
        self._restored = 0
        self._watchers: set[asyncio.Queue[None]] = set()

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
        self._add("nodes", {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": {}, "status": status})
        self._schedule()

    def change_node(self, name: str, change: Callable[[Object], None]) -> None:
        """Change a machine."""
        self._change("nodes", ("", name), change)
        self._schedule()

    def remove_node(self, name: str) -> None:
        """Take a machine away; its pods stay as they are."""
        self._drop("nodes", ("", name))

    def add_pod(
        self,
        name: str,
        *,
        namespace: str = "other",
        cpu: str = "0",
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Object:
        """Run a pod of somebody else."""
        amount = {"cpu": cpu} | ({RESOURCE: str(gpus)} if gpus else {})
        spec = {"containers": [{"name": "work", "image": "work", "resources": {"requests": amount, "limits": amount}}]}
        return self._create_pod(namespace, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def pods(self, namespace: str = "penstock") -> dict[str, Object]:
        """Return the pods of a namespace by name."""
        return {name: pod for (there, name), pod in self._objects["pods"].items() if there == namespace}

    def pulled(self, image: str) -> None:
        """Let an image come to its machines."""
        self.pulling.discard(image)
        for (namespace, name), pod in list(self._objects["pods"].items()):
            if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                self._start(namespace, name)

    def finish(self, name: str, code: int = 0, *, reason: str = "", namespace: str = "penstock") -> None:
        """Let the container of a pod end."""
        words = reason or ("Completed" if code == 0 else "Error")

        def end(pod: Object) -> None:
            running = pod["status"]["containerStatuses"][0]["state"]["running"]
            ended = {"exitCode": code, "reason": words, "startedAt": running["startedAt"], "finishedAt": _now()}
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
            pod["status"]["phase"] = "Failed" if code else "Succeeded"

        self._change("pods", (namespace, name), end)
        self._schedule()

    def evict(self, name: str, namespace: str = "penstock") -> None:
        """Let a machine throw a pod out without a word of its container."""

        def throw(pod: Object) -> None:
            pod["status"] |= {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node was low on resource: memory.",
            }
            pod["status"].pop("containerStatuses", None)

        self._change("pods", (namespace, name), throw)

    def delete(self, name: str, grace_s: int = 0, namespace: str = "penstock") -> None:
        """Delete a pod, as an administrator would."""
        self._delete_pod(namespace, name, grace_s)

    def compact(self) -> None:
        """Forget all changes: who watches from before must list again."""
        self._history, self._oldest = [], self._version
        self._wake()

    def restore(self) -> None:
        """Come back from a copy: watches end, and versions that were told are of a time that has never been."""
        self._history, self._oldest, self._version = [], 0, 1
        self._restored += 1
        self._wake()

    async def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        if self.away:
            raise httpx.ConnectError("connection refused", request=request)
        self.requests.append((request.method, request.url.path))
        try:
            self.admit(request.headers.get("authorization", ""))
            return self._answer(request)
        except RefusedError as refused:
            return httpx.Response(refused.code, json=refused.body)

    def admit(self, authorization: str) -> None:
        """Refuse whoever has not the token."""
        if authorization != f"Bearer {self.token}":
            raise RefusedError(401, "Unauthorized", "Unauthorized")

    def running(self, namespace: str, name: str) -> Object:
        """Return a pod whose container runs; refuses others."""
        pod = self._pod(namespace, name)
        if pod["status"]["phase"] != "Running":
            raise RefusedError(400, "BadRequest", f'container "{pod["spec"]["containers"][0]["name"]}" is not running')
        return pod

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, request.url.params
        if path == "/version":
            return httpx.Response(200, json={"major": "1", "minor": "20", "gitVersion": "v1.20.2"})
        for kind in ("nodes", "pods"):
            if path == f"/api/v1/{kind}" and request.method == "GET":
                self._allow("watch" if query.get("watch") else "list", kind)
                return self._watch(kind, query) if query.get("watch") else self._list(kind, query)
        if (found := POD.fullmatch(path)) is None:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        namespace, name = found["namespace"], found["name"] or ""
        if found["part"] == "log":
            self._allow("get", "pods/log")
            return self._log(namespace, name, query)
        verb = {"GET": "get", "POST": "create", "DELETE": "delete"}[request.method]
        self._allow(verb, "pods")
        if verb == "create":
            return httpx.Response(201, json=self._create_pod(namespace, json.loads(request.content)))
        pod = self._pod(namespace, name)
        if verb == "delete":
            options = json.loads(request.content or b"{}")
            grace_s = options.get("gracePeriodSeconds", 30)
            pod = self._delete_pod(namespace, name, grace_s)
        return httpx.Response(200, json=pod)

    def _allow(self, verb: str, resource: str) -> None:
        if f"{verb} {resource}" in self.denied:
            who = 'User "system:serviceaccount:penstock:penstock-agent"'
            message = f'{resource} is forbidden: {who} cannot {verb} resource "{resource}" in API group ""'
            raise RefusedError(403, "Forbidden", message)

    def _list(self, kind: str, query: httpx.QueryParams) -> httpx.Response:
        items = [item for item in sorted(self._objects[kind].items()) if _meets(item[1], query)]
        first, limit = int(query.get("continue", 0)), int(query.get("limit", len(items) or 1))
        more = str(first + limit) if first + limit < len(items) else ""
        metadata = {"resourceVersion": str(self._version)} | ({"continue": more} if more else {})
        page = [item for _, item in items[first : first + limit]]
        return httpx.Response(200, json={"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page})

    def _watch(self, kind: str, query: httpx.QueryParams) -> httpx.Response:
        return httpx.Response(200, content=self._events(kind, query))

    async def _events(self, kind: str, query: httpx.QueryParams) -> AsyncIterator[bytes]:
        since = int(query["resourceVersion"])
        until = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        queue: asyncio.Queue[None] = asyncio.Queue()
        self._watchers.add(queue)
        restored = self._restored
        try:
            if since > self._version:
                words = f"Too large resource version: {since}, current: {self._version}"
                yield _line("ERROR", RefusedError(504, "Timeout", words).body)
                return
            while (left := until - asyncio.get_running_loop().time()) > 0 and not self.away:
                if restored != self._restored:
                    return
                if since < self._oldest:
                    gone = RefusedError(410, "Expired", f"too old resource version: {since} ({self._oldest})")
                    yield _line("ERROR", gone.body)
                    return
                for version, of, event, item in list(self._history):
                    if version > since and of == kind and _meets(item, query):
                        yield _line(event, item)
                since = self._version
                try:
                    await asyncio.wait_for(queue.get(), left)
                except TimeoutError:
                    return
        finally:
            self._watchers.discard(queue)

    def _log(self, namespace: str, name: str, query: httpx.QueryParams) -> httpx.Response:
        pod = self._pod(namespace, name)
        if pod["status"]["phase"] == "Pending":
            container = pod["spec"]["containers"][0]["name"]
            message = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            raise RefusedError(400, "BadRequest", message)
        lines = self.written.get(name, b"").splitlines(keepends=True)
        tail = int(query["tailLines"]) if "tailLines" in query else len(lines)
        return httpx.Response(200, content=_parts(lines[len(lines) - min(tail, len(lines)) :]))

    def _create_pod(self, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        labels = body["metadata"].get("labels", {})
        if wrong := [value for value in labels.values() if not LABEL.fullmatch(value)]:
            raise RefusedError(422, "Invalid", f'Pod "{name}" is invalid: metadata.labels: Invalid value: "{wrong[0]}"')
        if not NAME.fullmatch(name):
            raise RefusedError(422, "Invalid", f'Pod "{name}" is invalid: metadata.name: Invalid value: "{name}"')
        if (namespace, name) in self._objects["pods"]:
            raise RefusedError(409, "AlreadyExists", f'pods "{name}" already exists')
        if self.most_pods is not None and len(self.pods(namespace)) >= self.most_pods:
            quota = (
                f"exceeded quota: most, requested: pods=1, used: pods={self.most_pods}, limited: pods={self.most_pods}"
            )
            raise RefusedError(403, "Forbidden", f'pods "{name}" is forbidden: {quota}')
        pod = copy.deepcopy(body) | {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}
        pod["metadata"]["namespace"] = namespace
        self._add("pods", pod)
        created = copy.deepcopy(self._objects["pods"][namespace, name])
        self._schedule()
        return created

    def _delete_pod(self, namespace: str, name: str, grace_s: int) -> Object:
        pod = self._pod(namespace, name)
        if grace_s and pod["spec"].get("nodeName"):
            at = (datetime.now(UTC) + timedelta(seconds=grace_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
            marks = {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace_s}
            self._change("pods", (namespace, name), lambda item: item["metadata"].update(marks))
            if pod["spec"]["nodeName"] in self.deaf:
                return self._pod(namespace, name)
        self._drop("pods", (namespace, name))
        self._schedule()
        return pod

    def _schedule(self) -> None:
        """Give pods without a machine one, in the order of their creation, and say why others get none."""
        for key, pod in list(self._objects["pods"].items()):
            if not self.schedules or pod["spec"].get("nodeName") or pod["status"]["phase"] in FINAL:
                continue
            machine = next(iter(self._fitting(pod)), "")
            if machine:
                self._change("pods", key, partial(_bind, machine))
                self._start(*key)
            elif not pod["status"].get("conditions"):
                words = f"0/{len(self._objects['nodes'])} nodes are available: insufficient resources."
                told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
                self._change("pods", key, partial(_tell, [told]))

    def _fitting(self, pod: Object) -> Iterator[str]:
        wanted = asked_by(pod, RESOURCE)
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        only = [name for term in terms for field in term["matchFields"] for name in field["values"]]
        for (_, name), node in sorted(self._objects["nodes"].items()):
            machine = machine_of(node, RESOURCE)
            held = sum((asked_by(other, RESOURCE) for other in self._on(name)), NOTHING)
            free = machine.amount - held
            chosen = pod["spec"].get("nodeSelector", {}).items() <= node["metadata"]["labels"].items()
            if machine.open and chosen and (not terms or name in only) and free | wanted == free:
                yield name

    def _on(self, name: str) -> list[Object]:
        pods = self._objects["pods"].values()
        return [pod for pod in pods if pod["spec"].get("nodeName") == name and pod["status"]["phase"] not in FINAL]

    def _start(self, namespace: str, name: str) -> None:
        container = self._pod(namespace, name)["spec"]["containers"][0]
        image = container["image"]
        state: Object = {"running": {"startedAt": _now()}}
        phase, digest = "Running", f"sha256:{image}"
        if image in self.pulling:
            state, phase, digest = {"waiting": {"reason": "ContainerCreating"}}, "Pending", ""
        elif image in self.missing:
            words = f'Back-off pulling image "{image}"'
            state, phase, digest = {"waiting": {"reason": "ImagePullBackOff", "message": words}}, "Pending", ""
        status = {"name": container["name"], "image": image, "imageID": digest, "state": state}
        self._change(
            "pods",
            (namespace, name),
            lambda item: item["status"].update(phase=phase, podIP="10.1.0.1", containerStatuses=[status]),
        )

    def _pod(self, namespace: str, name: str) -> Object:
        try:
            return self._objects["pods"][namespace, name]
        except KeyError:
            raise RefusedError(404, "NotFound", f'pods "{name}" not found') from None

    def _add(self, kind: str, item: Object) -> None:
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        key = item["metadata"].get("namespace", ""), item["metadata"]["name"]
        self._objects[kind][key] = item
        self._note(kind, "ADDED", item)

    def _change(self, kind: str, key: tuple[str, str], change: Callable[[Object], None]) -> None:
        item = copy.deepcopy(self._objects[kind][key])
        change(item)
        self._objects[kind][key] = item
        self._note(kind, "MODIFIED", item)

    def _drop(self, kind: str, key: tuple[str, str]) -> None:
        self._note(kind, "DELETED", copy.deepcopy(self._objects[kind].pop(key)))

    def _note(self, kind: str, event: str, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, kind, event, copy.deepcopy(item)))
        self._wake()

    def _wake(self) -> None:
        for queue in self._watchers:
            queue.put_nowait(None)


async def _parts(lines: list[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


def _bind(machine: str, pod: Object) -> None:
    pod["spec"]["nodeName"] = machine
    _tell([{"type": "PodScheduled", "status": "True"}], pod)


def _tell(conditions: list[dict[str, str]], pod: Object) -> None:
    pod["status"]["conditions"] = conditions


def _meets(item: Object, query: httpx.QueryParams) -> bool:
    wanted = [part.split("=") for part in query.get("labelSelector", "").split(",") if part]
    return all(item["metadata"].get("labels", {}).get(name) == value for name, value in wanted)


def _line(event: str, item: Object) -> bytes:
    return json.dumps({"type": event, "object": item}).encode() + b"\n"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
