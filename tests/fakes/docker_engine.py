"""A Docker Engine's API on a socket, as far as tests need it: versions, images, lists of containers and networks."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import unquote

_PATH = re.compile(r"(/v(?P<version>\d+\.\d+))?(?P<what>/[^?]*)")


@dataclass
class FakeDocker:
    """What the engine has. It takes calls of its API from `oldest` to `newest`; the defaults are those of Engine 29."""

    newest: str = "1.52"
    oldest: str = "1.44"
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    containers: list[dict[str, Any]] = field(default_factory=list)
    networks: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, Any]:
        """Return status and body of the answer to a GET."""
        found = _PATH.match(path)
        assert found, path
        if (version := found["version"]) and (refusal := self._refusal(version)):
            return 400, {"message": refusal}
        self.calls.append(path.partition("?")[0])
        match found["what"].strip("/").split("/"):
            case ["version"]:
                return 200, {"ApiVersion": self.newest, "MinAPIVersion": self.oldest, "Version": "29.0.0"}
            case ["info"]:
                return 200, {"ServerVersion": "29.0.0", "Runtimes": {}}
            case ["events"]:
                return 200, {"Action": "start", "Actor": {"Attributes": {}}}
            case ["networks"]:
                return 200, self.networks
            case ["containers", "json"]:
                return 200, self.containers
            case ["containers", name, "json"]:
                return 200, {"Name": f"/{name}"}
            case ["images", *name, "json"]:
                # by the beginning of an id, too, as every engine does
                wanted = unquote("/".join(name))
                known = self.images.get(wanted) or self._by_id(wanted)
                return (200, known) if known else (404, {"message": f"No such image: {wanted}"})
        return 404, {"message": "page not found"}

    def _by_id(self, wanted: str) -> dict[str, Any] | None:
        digits = wanted.rpartition("@")[2].removeprefix("sha256:")
        ids = (image for image in self.images.values() if image["Id"].startswith(f"sha256:{digits}"))
        return next(ids, None)

    def _refusal(self, version: str) -> str:
        if _number(version) < _number(self.oldest):
            return (
                f"client version {version} is too old. Minimum supported API version is {self.oldest},"
                " please upgrade your client to a newer version"
            )
        if _number(version) > _number(self.newest):
            return f"client version {version} is too new. Maximum supported API version is {self.newest}"
        return ""


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@contextmanager
def serving(fake: FakeDocker, socket: Path) -> Iterator[FakeDocker]:
    """Let a fake engine answer at a socket."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = fake.answer(self.path)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with _Server(str(socket), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield fake
        server.shutdown()


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
