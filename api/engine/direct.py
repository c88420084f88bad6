"""The engine `direct`: it talks to the node agents over mutual TLS."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import httpx
from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from api.engine.base import AgentAddress, TerminalSize, UnreachableError
from api.engine.pools import AgentPools
from common import certificates, problem, request_id
from common.audit_protocol import AUDIT_HEADS_PATH, AuditHeads
from common.errors import PenstockError, UnavailableError
from common.messages import Message, Report
from common.protocol import (
    CONTAINERS_PATH,
    HEALTH_PATH,
    IMAGES_PATH,
    MAX_FRAME,
    STALLED_S,
    ContainerSpec,
    ContainerState,
    GpuShares,
    ImageRequest,
    ImageState,
)
from common.revocation import refuse_revoked
from common.sentence import Sentence
from common.storage_protocol import STORAGE_PATH, FolderRemoval, StorageState

CONNECT_S = 3.0
ANSWER_S = 30.0
ReportT = TypeVar("ReportT", bound=Report)


def client_context(ca: Path, cert: Path, key: Path, crl: Path | None = None) -> ssl.SSLContext:
    """Return how we speak TLS with agents: theirs are certificates of the site that it has not revoked, and so is ours.

    Raises InputError where a file cannot be used.
    """
    context = certificates.context(ssl.Purpose.SERVER_AUTH, ca, cert, key)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return refuse_revoked(context, crl)


class WebSocketTerminal:
    """A terminal over a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        """Use an open connection."""
        self._connection = connection

    async def send(self, frame: bytes | str) -> None:
        """Send a frame; a terminal that has ended takes none."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed:
            return

    async def __aiter__(self) -> AsyncIterator[bytes | str]:
        """Return the frames until the agent ends."""
        try:
            async for frame in self._connection:
                yield frame
        except ConnectionClosed:
            return


class DirectEngine:
    """The engine that calls each node's agent itself."""

    def __init__(self, context: ssl.SSLContext) -> None:
        """Prepare the connections to all agents."""
        self._context = context
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        # agents are inside the site: no proxy of the environment stands before them, beside the transport either
        self._client = httpx.AsyncClient(transport=AgentPools(context), timeout=timeout, trust_env=False)

    async def probe(self, agent: AgentAddress) -> None:
        """Ask the agent how it is."""
        await self._call(agent, "GET", HEALTH_PATH)

    async def launch(self, agent: AgentAddress, spec: ContainerSpec) -> ContainerState:
        """Ask the agent for the container."""
        path = f"{CONTAINERS_PATH}/{spec.id}"
        response = await self._call(agent, "PUT", path, message=spec)
        return _read(agent, ContainerState, response)

    async def terminate(self, agent: AgentAddress, container_id: str, grace_s: int) -> None:
        """Ask the agent to stop and remove the container."""
        patience = httpx.Timeout(ANSWER_S + grace_s, connect=CONNECT_S)
        path = f"{CONTAINERS_PATH}/{container_id}"
        await self._call(agent, "DELETE", path, params={"grace_s": grace_s}, patience=patience)

    async def resize(self, agent: AgentAddress, container_id: str, shares: GpuShares) -> ContainerState:
        """Ask the agent for other shares."""
        path = f"{CONTAINERS_PATH}/{container_id}/gpus"
        response = await self._call(agent, "PUT", path, message=shares)
        return _read(agent, ContainerState, response)

    async def pull(self, agent: AgentAddress, reference: str) -> ImageState:
        """Ask the agent for the image."""
        response = await self._call(agent, "PUT", IMAGES_PATH, message=ImageRequest(reference=reference))
        return _read(agent, ImageState, response)

    async def storage(self, agent: AgentAddress, root: str) -> StorageState:
        """Ask the agent for the folders of a storage."""
        response = await self._call(agent, "GET", STORAGE_PATH, params={"root": root})
        return _read(agent, StorageState, response)

    async def remove_folder(self, agent: AgentAddress, folder: str) -> FolderRemoval:
        """Ask the agent to remove a folder."""
        response = await self._call(agent, "DELETE", STORAGE_PATH, params={"folder": folder})
        return _read(agent, FolderRemoval, response)

    async def audit_heads(self, agent: AgentAddress) -> AuditHeads:
        """Ask the agent for the heads that it keeps."""
        return _read(agent, AuditHeads, await self._call(agent, "GET", AUDIT_HEADS_PATH))

    async def logs(
        self, agent: AgentAddress, container_id: str, *, follow: bool, tail: int | None
    ) -> AsyncIterator[bytes]:
        """Relay the agent's stream."""
        params: dict[str, int] = {"follow": int(follow)} | ({} if tail is None else {"tail": tail})
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=None if follow else ANSWER_S)
        url = f"https://{_host(agent)}{CONTAINERS_PATH}/{container_id}/logs"
        try:
            async with self._client.stream(
                "GET", url, params=params, timeout=timeout, headers=request_id.headers()
            ) as response:
                if response.is_error:
                    await response.aread()
                    raise _refusal(agent, response)
                async for chunk in response.aiter_raw():
                    yield chunk
        except httpx.TransportError as error:
            raise _unreachable(agent, error) from error

    @asynccontextmanager
    async def terminal(
        self, agent: AgentAddress, container_id: str, command: list[str], *, tty: TerminalSize | None, apart: bool
    ) -> AsyncIterator[WebSocketTerminal]:
        """Open the agent's WebSocket."""
        size = {"rows": tty.rows, "cols": tty.cols} if tty else {}
        query = {"command": json.dumps(command), "tty": int(tty is not None), "apart": int(apart), **size}
        url = f"wss://{_host(agent)}{CONTAINERS_PATH}/{container_id}/exec?{urlencode(query)}"
        try:
            connection = await connect(
                url,
                ssl=self._context,
                open_timeout=ANSWER_S,
                ping_timeout=STALLED_S,
                max_size=MAX_FRAME,
                proxy=None,
                compression=None,
                additional_headers=request_id.headers(),
            )
        except InvalidStatus as error:
            raise _refused(agent, error.response.status_code, bytes(error.response.body or b"")) from error
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise UnreachableError(_silent(agent, str(error)), delivered=False) from error
        async with connection:
            yield WebSocketTerminal(connection)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _call(
        self,
        agent: AgentAddress,
        method: str,
        path: str,
        *,
        message: Message | None = None,
        params: Mapping[str, int | str] | None = None,
        patience: httpx.Timeout | None = None,
    ) -> httpx.Response:
        url = f"https://{_host(agent)}{path}"
        try:
            response = await self._client.request(
                method,
                url,
                content=message.written() if message else None,
                params=params,
                timeout=patience or self._client.timeout,
                headers=request_id.headers() | ({"Content-Type": "application/json"} if message else {}),
            )
        except httpx.TransportError as error:
            raise _unreachable(agent, error) from error
        if response.is_error:
            raise _refusal(agent, response)
        return response


def _read(agent: AgentAddress, kind: type[ReportT], response: httpx.Response) -> ReportT:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise UnreachableError(
            f"the agent of {agent.name} answered what is no {kind.__name__}", delivered=True
        ) from error


def _host(agent: AgentAddress) -> str:
    return f"[{agent.address}]:{agent.port}" if ":" in agent.address else f"{agent.address}:{agent.port}"


def _unreachable(agent: AgentAddress, error: httpx.TransportError) -> UnreachableError:
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    why = str(error) or type(error).__name__
    return UnreachableError(_silent(agent, why), delivered=not never_sent)


def _silent(agent: AgentAddress, why: str) -> str:
    return Sentence("the agent of {node} does not answer: {why}", node=agent.name, why=why)


def _refusal(agent: AgentAddress, response: httpx.Response) -> PenstockError:
    return _refused(agent, response.status_code, response.content)


def _refused(agent: AgentAddress, status: int, body: bytes) -> PenstockError:
    """Return the agent's refusal with its own words; what lies on the agent's side may pass, and is tried again."""
    told = problem.read(status, body)
    if told and not isinstance(told, UnavailableError):
        return told
    text = told.problems[0].reason if told else f"status {status}"
    why = Sentence("the agent of {node} failed: {why}", node=agent.name, why=text)
    return UnreachableError(why, delivered=True, answered=True)
