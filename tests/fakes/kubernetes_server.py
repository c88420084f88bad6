"""The fake cluster on a TLS port of this machine, in a thread of its own, with terminals."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

import httpx
import uvicorn

from tests.fakes.kubernetes import POD, FakeKubernetes
from tests.fakes.kubernetes_store import RefusedError

T = TypeVar("T")

HALF_CLOSING, PLAIN = "v5.channel.k8s.io", "v4.channel.k8s.io"


class Server:
    """Serves a cluster; what a test does to the cluster is done in the loop that serves it."""

    def __init__(self, cluster: FakeKubernetes, certificate: Path, key: Path) -> None:
        """Prepare. `protocols` are those that terminals may speak."""
        self.protocols: tuple[str, ...] = (HALF_CLOSING, PLAIN)
        self.cluster = cluster
        self._loop = asyncio.new_event_loop()
        config = uvicorn.Config(
            self, host="127.0.0.1", port=0, ssl_certfile=certificate, ssl_keyfile=key, log_level="error", lifespan="off"
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._server.serve()], daemon=True)

    @property
    def url(self) -> str:
        """Where the cluster is."""
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return f"https://127.0.0.1:{port}"

    def do(self, work: Callable[[FakeKubernetes], T]) -> T:
        """Do something to the cluster, or look at it."""

        async def inside() -> T:
            return work(self.cluster)

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(60)

    def start(self) -> None:
        """Serve."""
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            threading.Event().wait(0.01)

    def stop(self) -> None:
        """Hang up on everybody."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as an ASGI application."""
        if scope["type"] == "websocket":
            await self._terminal(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        url = f"https://cluster{scope['path']}?{scope['query_string'].decode()}"
        try:
            response = await self.cluster.handle(
                httpx.Request(scope["method"], url, headers=scope["headers"], content=body)
            )
        except httpx.ConnectError:
            response = httpx.Response(503, text="the cluster is away")
        kept = [(name, value) for name, value in response.headers.raw if name.lower() == b"retry-after"]
        headers = [(b"content-type", b"application/json"), *kept]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})

        async def answer() -> None:
            stream = response.stream
            assert isinstance(stream, httpx.AsyncByteStream)
            async for chunk in stream:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        # a caller that goes away ends a watch
        tasks = {asyncio.create_task(answer()), asyncio.create_task(receive())}
        _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()

    async def _terminal(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        found = POD.fullmatch(scope["path"])
        assert found is not None
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        try:
            self.cluster.admit(headers.get("authorization", ""))
            self.cluster.allow("get", "pods/exec", found["namespace"])
            self.cluster.running(found["namespace"], found["name"])
        except RefusedError as refused:
            body = json.dumps(refused.body).encode()
            start = {"type": "websocket.http.response.start", "status": refused.code, "headers": []}
            await send(start)
            await send({"type": "websocket.http.response.body", "body": body})
            return
        offered = [name for name in scope["subprotocols"] if name in self.protocols]
        await send({"type": "websocket.accept", "subprotocol": offered[0]})
        query = parse_qs(scope["query_string"].decode())
        # a real one begins with nothing on each channel
        await send({"type": "websocket.send", "bytes": b"\x01"})
        code = await _run(query["command"], receive, lambda data: send({"type": "websocket.send", "bytes": data}))
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            words = f"command terminated with non-zero exit code: exit status {code}"
            details = {"reason": "NonZeroExitCode", "details": {"causes": causes}, "message": words}
            status = {"metadata": {}, "status": "Failure"} | details
        await send({"type": "websocket.send", "bytes": b"\x03" + json.dumps(status).encode()})
        await send({"type": "websocket.close", "code": 1000})


async def _run(command: list[str], receive: Any, send: Callable[[bytes], Any]) -> int:
    """Run one of the few commands that the cluster's images have; returns its exit code."""
    match command:
        case ["echo", *words]:
            await send(b"\x01" + " ".join(words).encode() + b"\n")
        case ["fail", code]:
            await send(b"\x02it fails\n")
            return int(code)
        case ["size"]:
            data = (await receive())["bytes"]
            await send(b"\x01" + data[1:] if data[:1] == b"\x04" else b"\x01no size")
        case ["cat"]:
            while (message := await receive())["type"] == "websocket.receive" and message["bytes"] != b"\xff\x00":
                await send(b"\x01" + message["bytes"][1:])
    return 0


@contextmanager
def running_kubernetes(cluster: FakeKubernetes, certificate: Path, key: Path) -> Iterator[Server]:
    """Serve a cluster as long as the context lasts."""
    server = Server(cluster, certificate, key)
    server.start()
    try:
        yield server
    finally:
        server.stop()
