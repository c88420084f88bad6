"""A Kubernetes cluster as its interface shows it: an API server with rights and admission, a scheduler, machines.

What it answers was compared with a real API server where that can be (`kube-apiserver`, without machines). It needs
no sockets: `handle` answers httpx's requests, so `httpx.MockTransport` may stand before it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx

from tests.fakes import kubernetes_admission as admission
from tests.fakes.kubernetes_machines import GRACE_S, RESOURCE, Machines
from tests.fakes.kubernetes_store import Object, RefusedError

WHO = 'User "system:serviceaccount:penstock:penstock-agent"'
POD = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods(/(?P<name>[^/]+)(/(?P<part>log|exec))?)?")
BARE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}


class FakeKubernetes(Machines):
    """One cluster. `token` opens it; while it is `away` nobody gets an answer.

    `denied` verbs are refused as if the role lacked them, and all but
    the rules of `grant`, if anything was granted. `most_pods` is a quota. The next `busy` calls are too many, the next
    `conflicts` pods meet one. `webhooks` change pods before they are looked at. `namespaces` have their labels.
    """

    def __init__(self) -> None:
        """Start without nodes."""
        super().__init__()
        self.token = "secret"
        self.denied: set[str] = set()
        self.namespaces: dict[str, dict[str, str]] = {
            "penstock": {"pod-security.kubernetes.io/enforce": "restricted"},
            "other": {},
        }
        self.runtime_classes: set[str] = set()
        self.webhooks: list[Callable[[Object], None]] = []
        self.most_pods: int | None = None
        self.busy = 0
        self.conflicts = 0
        self.written: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self._rules: list[tuple[str, Mapping[str, Any]]] = []

    def grant(self, manifests: Sequence[Object]) -> None:
        """Apply what an administrator does: from then on the token has these rights and no others."""
        for item in manifests:
            if item["kind"] in ("Role", "ClusterRole"):
                self._rules += [(item["metadata"].get("namespace", ""), rule) for rule in item["rules"]]
            elif item["kind"] == "Namespace":
                self.namespaces[item["metadata"]["name"]] = dict(item["metadata"]["labels"])

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
        container = {"name": "work", "image": "work", "resources": {"requests": amount, "limits": amount}}
        spec = {
            "containers": [container | {"securityContext": BARE}],
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        }
        return self.put_pod(namespace, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def put_pod(self, namespace: str, body: Object) -> Object:
        """Make a pod as somebody with all rights."""
        return self._create_pod(namespace, body)

    def pods(self, namespace: str = "penstock") -> dict[str, Object]:
        """Return the pods of a namespace by name."""
        return {name: pod for (there, name), pod in self._objects["pods"].items() if there == namespace}

    async def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        if self.away:
            raise httpx.ConnectError("connection refused", request=request)
        self.requests.append((request.method, request.url.path))
        try:
            if self.busy > 0:
                self.busy -= 1
                words = "the server has received too many requests and has asked us to try again later"
                details = {"retryAfterSeconds": 1}
                raise RefusedError(429, "TooManyRequests", words, details=details, headers={"Retry-After": "1"})
            self.admit(request.headers.get("authorization", ""))
            return self._answer(request)
        except RefusedError as refused:
            return httpx.Response(refused.code, json=refused.body, headers=refused.headers)

    def admit(self, authorization: str) -> None:
        """Refuse whoever has not the token."""
        if authorization != f"Bearer {self.token}":
            raise RefusedError(401, "Unauthorized", "Unauthorized")

    def allow(self, verb: str, resource: str, namespace: str = "") -> None:
        """Refuse what the role of the token does not have."""
        granted = not self._rules or any(
            (not where or where == namespace) and verb in rule["verbs"] and resource in rule["resources"]
            for where, rule in self._rules
        )
        if not granted or f"{verb} {resource}" in self.denied:
            message = f'{resource} is forbidden: {WHO} cannot {verb} resource "{resource}" in API group ""'
            raise RefusedError(403, "Forbidden", message)

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
                self.allow("watch" if query.get("watch") else "list", kind)
                return self._watch(kind, query) if query.get("watch") else self._list(kind, query)
        if (found := POD.fullmatch(path)) is None:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        namespace, name = found["namespace"], found["name"] or ""
        if found["part"] == "log":
            self.allow("get", "pods/log", namespace)
            return self._log(namespace, name, query)
        verb = {"GET": "get", "POST": "create", "DELETE": "delete"}[request.method]
        self.allow(verb, "pods", namespace)
        if verb == "create":
            body = json.loads(request.content)
            return httpx.Response(201, json=self._create_pod(namespace, body, dry=query.get("dryRun") == "All"))
        pod = self._pod(namespace, name)
        if verb == "delete":
            options = json.loads(request.content or b"{}")
            pod = self._delete_pod(namespace, name, options.get("gracePeriodSeconds", GRACE_S))
        return httpx.Response(200, json=pod)

    def _log(self, namespace: str, name: str, query: httpx.QueryParams) -> httpx.Response:
        pod = self._pod(namespace, name)
        if pod["status"]["phase"] == "Pending":
            container = pod["spec"]["containers"][0]["name"]
            message = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            raise RefusedError(400, "BadRequest", message)
        if len(pod["spec"]["containers"]) > 1 and "container" not in query:
            raise RefusedError(400, "BadRequest", f"a container name must be specified for pod {name}")
        lines = self.written.get(name, b"").splitlines(keepends=True)
        tail = int(query["tailLines"]) if "tailLines" in query else len(lines)
        return httpx.Response(200, content=_parts(lines[len(lines) - min(tail, len(lines)) :]))

    def _create_pod(self, namespace: str, body: Object, *, dry: bool = False) -> Object:
        name = body["metadata"]["name"]
        if namespace not in self.namespaces:
            raise RefusedError(404, "NotFound", f'namespaces "{namespace}" not found')
        pod = copy.deepcopy(body)
        admission.default(pod)
        for change in self.webhooks:
            change(pod)
        admission.check_fields(pod, self.runtime_classes)
        admission.check_security(pod, self.namespaces[namespace])
        if (namespace, name) in self._objects["pods"]:
            raise RefusedError(409, "AlreadyExists", f'pods "{name}" already exists')
        if self.conflicts > 0:
            self.conflicts -= 1
            words = "the object has been modified; please apply your changes to the latest version and try again"
            raise RefusedError(409, "Conflict", f'Operation cannot be fulfilled on resourcequotas "most": {words}')
        if self.most_pods is not None and len(self.pods(namespace)) >= self.most_pods:
            quota = (
                f"exceeded quota: most, requested: pods=1, used: pods={self.most_pods}, limited: pods={self.most_pods}"
            )
            raise RefusedError(403, "Forbidden", f'pods "{name}" is forbidden: {quota}')
        pod |= {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}
        pod["metadata"]["namespace"] = namespace
        if dry:
            return pod
        self._add("pods", pod)
        created = copy.deepcopy(self._objects["pods"][namespace, name])
        self._schedule()
        return created


async def _parts(lines: list[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line
