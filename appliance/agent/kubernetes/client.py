"""Kubernetes' interface over HTTPS: calls, streams, and its refusals as errors of ours."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from common.errors import ConflictError, InputError, NotFoundError, PenstockError, UnavailableError

ANSWER_S = 15.0
CONNECT_S = 5.0
PAGE = 500
"""So many objects of a list come in one answer."""
PATIENCE_S = 5.0
"""A cluster that says that it is asked too much is asked again for so long, when it says that it may be."""
_LISTS = 5


class ClusterAwayError(UnavailableError):
    """The cluster does not answer; what was asked for may have happened or not."""


class GoneError(PenstockError):
    """What was asked to be watched from is too old; a new list is needed."""


_KINDS = {400: InputError, 404: NotFoundError, 409: ConflictError, 410: GoneError, 422: InputError}
_NEVER_ADMITTED = {
    "violates PodSecurity": "let the administrator compare `pod_security` of the cluster with its namespace's labels",
    "pod rejected: RuntimeClass": "let the administrator look at `runtime_class` of the cluster",
    "denied the request": "let the administrator look at the cluster's policies",
}
"""What a cluster says of a pod that it will not take the next time either, and what to do about it."""


class Token(httpx.Auth):
    """The token of a service account, read anew for each call: a cluster replaces it every hour or so."""

    def __init__(self, path: Path) -> None:
        """Read the token from a file."""
        self._path = path

    def headers(self) -> dict[str, str]:
        """Return what proves who calls; raises UnavailableError where the file cannot be read."""
        try:
            return {"Authorization": f"Bearer {self._path.read_text().strip()}"}
        except OSError as error:
            raise UnavailableError(
                f"the token of the cluster cannot be read: {error}",
                where="PENSTOCK_AGENT_KUBERNETES_TOKEN",
                hint="write the token of the service account there",
            ) from error

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add it to a request."""
        request.headers.update(self.headers())
        yield request


class Client:
    """A cluster, as far as the token goes."""

    def __init__(
        self,
        url: str,
        token: Path,
        context: ssl.SSLContext,
        *,
        namespace: str,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare for calls to `url`, whose certificate `context` verifies. Pods of ours are in `namespace`."""
        self.url = url
        self.context = context
        self.namespace = namespace
        self.token = Token(token)
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        # nothing of the environment stands between the agent and the cluster
        self._http = httpx.AsyncClient(
            base_url=url,
            verify=context,
            auth=self.token,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            transport=transport,
            trust_env=False,
        )

    async def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """Return an object."""
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Make an object and return it; raises ConflictError where there is one of its name."""
        return await self._call("POST", path, query=query, body=body)

    async def delete(self, path: str, grace_s: int) -> None:
        """Have an object deleted; no error where there is none."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_s}
        try:
            await self._call("DELETE", path, body=body)
        except NotFoundError:
            return

    async def every(self, path: str, **query: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a list, and the version of the cluster's data from which they can be watched.

        What expires between two pages begins anew: half of an old list and half of a new one are none.
        """
        for _ in range(_LISTS):
            try:
                return await self._every(path, query)
            except GoneError as error:
                expired = error
        raise ClusterAwayError(f"its list expires before it is read: {expired}", where="Kubernetes")

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str | int], *, silence_s: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Open an answer that goes on, with no more than `silence_s` between its parts; raises PenstockError."""
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=silence_s)
        request = self._http.build_request("GET", path, params=query, timeout=timeout)
        try:
            response = await self._send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                    raise refusal(response.status_code, response.content)
                yield response
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise _away(error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _every(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        found: list[dict[str, Any]] = []
        more: dict[str, str | int] = {**query, "limit": PAGE}
        while True:
            page = await self.get(path, **more)
            found += page["items"]
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return found, str(metadata["resourceVersion"])
            more["continue"] = metadata["continue"]

    async def _call(
        self, method: str, path: str, *, query: Mapping[str, str | int] | None = None, body: object = None
    ) -> dict[str, Any]:
        try:
            response = await self._send(self._http.build_request(method, path, params=query, json=body))
        except httpx.TransportError as error:
            raise _away(error) from error
        if response.is_error:
            raise refusal(response.status_code, response.content)
        answer: dict[str, Any] = response.json()
        return answer

    async def _send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """Send a request, again where the cluster was asked too much: it has done nothing of it then."""
        until = time.monotonic() + PATIENCE_S
        while True:
            response = await self._http.send(request, stream=stream)
            pause_s = _pause_s(response)
            if pause_s is None or time.monotonic() + pause_s > until:
                return response
            await response.aclose()
            await asyncio.sleep(pause_s)


def refusal(code: int, body: bytes) -> PenstockError:
    """Return what a cluster refused, in its own words."""
    try:
        status = json.loads(body)
        message = str(status["message"])
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace").strip() or f"status {code}"
    for words, hint in _NEVER_ADMITTED.items():
        if code in (400, 403) and words in message:
            return InputError(message, where="Kubernetes", hint=hint)
    if code == 403 and 'User "' not in message:
        # the rights of the service account are refused in that form, all else is a rule of the cluster
        return ConflictError(message, where="Kubernetes", hint="look at the quotas and policies of the namespace")
    if code in (401, 403):
        return UnavailableError(
            f"the cluster refuses the agent: {message}",
            where="Kubernetes",
            hint="look at the token of the service account, and at its role",
        )
    if kind := _KINDS.get(code):
        return kind(message, where="Kubernetes", hint="change what the session asks for")
    return ClusterAwayError(f"the cluster failed: {message}", where="Kubernetes", hint="look at its API servers")


def _pause_s(response: httpx.Response) -> float | None:
    """Return after how many seconds a cluster wants to be asked again; None where it has answered."""
    if response.status_code != httpx.codes.TOO_MANY_REQUESTS:
        return None
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else 1.0


def _away(error: httpx.TransportError) -> ClusterAwayError:
    return ClusterAwayError(
        f"the cluster does not answer: {str(error) or type(error).__name__}",
        where="Kubernetes",
        hint="look at its API servers, and at PENSTOCK_AGENT_KUBERNETES_API",
    )
