"""An API behind the edges that answers with the headers that reach it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    """One request; connections stay, as those of the API do."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, str]] = []  # noqa: RUF012 - one server, one list

    def do_GET(self) -> None:
        self.asked.append({key.lower(): value for key, value in self.headers.items()})
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps(self.asked[-1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def running_echo() -> Iterator[int]:
    """Serve on a port of the loopback address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
