"""The agent's HTTP interface, as `protocol.py` describes it, for callers whose certificate the settings allow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import (
    Depends,
    FastAPI,
    Query,
    Request,
    Response,
    WebSocket,
    WebSocketDisconnect,
    WebSocketException,
    status,
)
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from appliance.agent.boot import boot
from appliance.agent.container_runtime import ContainerRuntime, RunningTerminal
from appliance.agent.health import build as health
from appliance.agent.reports.audit_heads import AuditHeadKeeper
from appliance.agent.reports.heartbeat import HeartbeatReporter
from appliance.agent.settings import Settings
from appliance.agent.supervision import Background, Work, keep_on
from common import revocation
from common.audit_protocol import AUDIT_HEADS_PATH, AuditHeads
from common.errors import ForbiddenError, InputError, PenstockError
from common.protocol import (
    CONTAINERS_PATH,
    HEALTH_PATH,
    IMAGES_PATH,
    NODE_INFO_PATH,
    STDOUT,
    ContainerSpec,
    ContainerState,
    ExecControl,
    GpuShares,
    ImageRequest,
    ImageState,
    NodeInfo,
)
from common.refusals import install, refuse
from common.request_id import RequestIds
from common.storage_protocol import STORAGE_PATH, FolderRemoval, StorageState
from common.watchdog import Watchdog

CONTAINER_PATH = CONTAINERS_PATH + "/{identity}"
MAX_GRACE_S = 600
_command = TypeAdapter(Annotated[list[str], Query(min_length=1)])


def make(settings: Settings, runtime: ContainerRuntime) -> FastAPI:
    """Return the application of one agent."""
    supervisor = runtime.containers
    audit_heads = AuditHeadKeeper(settings.state_folder)

    def allowed(connection: HTTPConnection) -> None:
        peer = connection.state.peer
        if peer in settings.allowed:
            return
        if connection.scope["type"] == "websocket":
            raise WebSocketException(status.WS_1008_POLICY_VIOLATION, f"{peer} may not call this agent")
        raise ForbiddenError(
            f"the certificate of {peer or 'nobody'} may not call this agent",
            where="certificate",
            hint="call with the certificate of the control API",
        )

    app = FastAPI(
        title="Penstock agent",
        lifespan=_lifespan(settings, runtime, audit_heads),
        dependencies=[Depends(allowed)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.router.route_class = _Route
    install(app, "the agent")
    app.add_exception_handler(HTTPException, _unknown)
    app.add_middleware(RequestIds, trusts=lambda scope: scope["state"].get("peer") in settings.allowed)

    @app.get(HEALTH_PATH)
    async def health() -> dict[str, str]:
        return {"status": "ok", "name": settings.name, "version": runtime.node_info().agent_version}

    @app.get(NODE_INFO_PATH)
    async def show_node_info() -> NodeInfo:
        return runtime.node_info()

    @app.get(AUDIT_HEADS_PATH)
    async def show_audit_heads() -> AuditHeads:
        return audit_heads.heads()

    @app.put(IMAGES_PATH)
    async def ask_for_image(request: ImageRequest) -> ImageState:
        return await runtime.images.ask(request.reference)

    @app.get(STORAGE_PATH)
    async def look_at_storage(root: Path) -> StorageState:
        return await runtime.volumes.look(root)

    @app.delete(STORAGE_PATH)
    async def remove_folder(folder: Path) -> FolderRemoval:
        return await runtime.volumes.remove(folder)

    @app.get(CONTAINERS_PATH)
    async def list_containers() -> list[ContainerState]:
        return supervisor.states()

    @app.put(CONTAINER_PATH)
    async def launch(identity: str, spec: ContainerSpec) -> ContainerState:
        if spec.id != identity:
            raise InputError(f"the path names {identity}", where="id", hint="use one id in path and body")
        return await supervisor.launch(spec)

    @app.put(CONTAINER_PATH + "/gpus")
    async def resize(identity: str, wanted: GpuShares) -> ContainerState:
        return await supervisor.resize(identity, wanted.gpus)

    @app.delete(CONTAINER_PATH, status_code=204)
    async def remove(identity: str, grace_s: Annotated[int, Query(ge=0, le=MAX_GRACE_S)] = 10) -> Response:
        await supervisor.remove(identity, grace_s)
        return Response(status_code=204)

    @app.get(CONTAINER_PATH + "/logs")
    async def logs(identity: str, follow: bool = False, tail: Annotated[int | None, Query(ge=0)] = None) -> Response:
        return StreamingResponse(await supervisor.logs(identity, follow=follow, tail=tail), media_type="text/plain")

    @app.websocket(CONTAINER_PATH + "/exec")
    async def execute(
        *,
        websocket: WebSocket,
        identity: str,
        command: str,
        tty: bool = False,
        rows: int = 24,
        cols: int = 80,
        apart: bool = False,
    ) -> None:
        await websocket.accept()
        try:
            async with runtime.terminal(identity, _parse_command(command), tty=tty) as terminal:
                if tty:
                    await terminal.resize(rows, cols)
                last = await _relay(websocket, terminal, apart=apart)
        except PenstockError as error:
            last = ExecControl(type="error", reason=str(error), status=error.http_status)
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_text(last.model_dump_json())
            await websocket.close()

    return app


class _Route(APIRoute):
    """Answers without what is at its default, which an API of another release need not know."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "response_model_exclude_defaults": True})


def _lifespan(
    settings: Settings, runtime: ContainerRuntime, audit_heads: AuditHeadKeeper
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return what runs beside the application, from its start to its end."""
    supervisor = runtime.containers

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = Background()
        monitor = health.build(settings, runtime.node_info, runtime.looks)
        heartbeats = HeartbeatReporter(
            settings, runtime.node_info, supervisor, monitor.reports, audit_heads.note, machine=boot()
        )

        async def what_hangs() -> str:
            return "the timetable of GPUs" if runtime.is_stuck() else "heartbeats" if heartbeats.is_stuck() else ""

        watchdog = Watchdog(what_hangs, settings.notify_socket, settings.watchdog_usec)
        # first: Docker may take longer to tell its containers than systemd waits for a sign of life
        tasks.begin(keep_on("watchdog", watchdog.run))
        # a container that was created before this agent ended is started by the next line
        runtime.begin()
        await supervisor.rebuild()
        works: dict[str, Work] = {
            "audit heads": audit_heads.run,
            "containers": supervisor.watch,
            "health": partial(monitor.run, settings.health_interval_s, supervisor.changed.set),
            "heartbeats": heartbeats.run,
            "revocations": revocation.keep_fresh,
        }
        for name, work in {**works, **runtime.tasks}.items():
            tasks.begin(keep_on(name, work))
        yield
        await tasks.close()
        await supervisor.close()
        await runtime.volumes.close()
        runtime.close()

    return lifespan


async def _relay(websocket: WebSocket, terminal: RunningTerminal, *, apart: bool) -> ExecControl:
    """Carry bytes both ways until the command or the caller ends; return the last frame."""
    # a caller that goes away ends the command; a command that ends does not wait for the caller
    outward, inward = _outward(websocket, terminal, apart=apart), _inward(websocket, terminal)
    tasks = {asyncio.create_task(outward), asyncio.create_task(inward)}
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    return next(task.result() for task in done)


async def _outward(websocket: WebSocket, terminal: RunningTerminal, *, apart: bool) -> ExecControl:
    stream = STDOUT
    async for of, chunk in terminal.output():
        if apart and of != stream:
            stream = of
            await websocket.send_text(ExecControl(type="stream", code=stream).model_dump_json())
        await websocket.send_bytes(chunk)
    return ExecControl(type="exit", code=await terminal.exit_code())


async def _inward(websocket: WebSocket, terminal: RunningTerminal) -> ExecControl:
    while (frame := await websocket.receive())["type"] != "websocket.disconnect":
        if data := frame.get("bytes"):
            await terminal.write(data)
        elif text := frame.get("text"):
            try:
                control = ExecControl.model_validate_json(text)
            except ValidationError as error:
                return ExecControl(type="error", reason=f"not a control frame: {error.errors()[0]['msg']}")
            if control.type == "resize":
                await terminal.resize(control.rows, control.cols)
            elif control.type == "eof":
                await terminal.write_eof()
    return ExecControl(type="error", reason="the caller went away")


def _parse_command(text: str) -> list[str]:
    try:
        return _command.validate_python(json.loads(text))
    except (json.JSONDecodeError, ValidationError):
        raise InputError(
            "the command is not a JSON list of texts", where="command", hint='write ["bash", "-l"]'
        ) from None


async def _unknown(_: Request, error: Exception) -> JSONResponse:
    """Say that only another release of the agent knows this; 404 would say that there is no such container."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    if error.status_code in (404, 405):
        return refuse(501, "this agent does not know this call", "upgrade the node")
    return refuse(error.status_code, str(error.detail), "")
