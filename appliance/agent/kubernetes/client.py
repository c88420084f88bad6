"""Kubernetes' interface over HTTPS: calls, streams, and its refusals as errors of ours."""

from __future__ import annotations

import json
import ssl
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


class ClusterAwayError(UnavailableError):
    """The cluster does not answer; what was asked for may have happened or not."""


class GoneError(PenstockError):
    """What was asked to be watched from is too old; a new list is needed."""


_KINDS = {400: InputError, 404: NotFoundError, 409: ConflictError, 410: GoneError, 422: InputError}


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

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object and return it; raises ConflictError where there is one of its name."""
        return await self._call("POST", path, body=body)

    async def delete(self, path: str, grace_s: int) -> None:
        """Have an object deleted; no error where there is none."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_s}
        try:
            await self._call("DELETE", path, body=body)
        except NotFoundError:
            return

    async def every(self, path: str, **query: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a list, and the version of the cluster's data from which they can be watched."""
        found: list[dict[str, Any]] = []
        more: dict[str, str | int] = {**query, "limit": PAGE}
        while True:
            page = await self.get(path, **more)
            found += page["items"]
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return found, str(metadata["resourceVersion"])
            more["continue"] = metadata["continue"]

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str | int], *, silence_s: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Open an answer that goes on, with no more than `silence_s` between its parts; raises PenstockError."""
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=silence_s)
        try:
            async with self._http.stream("GET", path, params=query, timeout=timeout) as response:
                if response.is_error:
                    await response.aread()
                    raise refusal(response.status_code, response.content)
                yield response
        except httpx.TransportError as error:
            raise _away(error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _call(
        self, method: str, path: str, *, query: Mapping[str, str | int] | None = None, body: object = None
    ) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, params=query, json=body)
        except httpx.TransportError as error:
            raise _away(error) from error
        if response.is_error:
            raise refusal(response.status_code, response.content)
        answer: dict[str, Any] = response.json()
        return answer


def refusal(code: int, body: bytes) -> PenstockError:
    """Return what a cluster refused, in its own words."""
    try:
        status = json.loads(body)
        message = str(status["message"])
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace").strip() or f"status {code}"
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


def _away(error: httpx.TransportError) -> ClusterAwayError:
    return ClusterAwayError(
        f"the cluster does not answer: {str(error) or type(error).__name__}",
        where="Kubernetes",
        hint="look at its API servers, and at PENSTOCK_AGENT_KUBERNETES_API",
    )
