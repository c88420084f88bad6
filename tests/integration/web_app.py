"""The program of a session in the tests: a web server that shows what it was asked, and an echo by WebSocket."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from websockets.sync.server import ServerConnection, serve

OF_AN_ORIGIN = (
    "Accept-CH",
    "Alt-Svc",
    "Clear-Site-Data",
    "Critical-CH",
    "NEL",
    "Origin-Agent-Cluster",
    "Public-Key-Pins",
    "Report-To",
    "Reporting-Endpoints",
    "Service-Worker-Allowed",
    "Set-Login",
    "Strict-Transport-Security",
)
"""Headers that browsers take for all of an origin."""


class Handler(BaseHTTPRequestHandler):
    """Answers with the request; below /go it sends the browser elsewhere, and /drip has no end.

    Below /plant it sets a cookie for what is named there.
    """

    def do_GET(self) -> None:
        """Show the request."""
        if self.path == "/drip":
            self._drip()
        else:
            self._answer(b"")

    def do_POST(self) -> None:
        """Show the request with its body."""
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        goes = self.path.startswith("/go")
        shown = {"path": self.path, "headers": dict(self.headers), "body": len(body)}
        answer = json.dumps(shown).encode()
        self.send_response(302 if goes else 403 if self.path.startswith("/forbidden") else 200)
        if goes:
            self.send_header("Location", self.path.partition("=")[2])
        self.send_header("Set-Cookie", "app=1; Path=/")
        if self.path.startswith("/plant="):
            self.send_header("Set-Cookie", f"planted=1; Path=/; Domain={self.path.partition('=')[2]}")
        self.send_header("Referrer-Policy", "unsafe-url")
        for name in OF_AN_ORIGIN:
            self.send_header(name, "1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            while True:
                self.wfile.write(b"drop\n")
                time.sleep(0.2)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def echo(connection: ServerConnection) -> None:
    """Send everything back; tell the headers first."""
    assert connection.request is not None
    connection.send(json.dumps({"path": connection.request.path, "headers": dict(connection.request.headers)}))
    for message in connection:
        connection.send(message)


def main() -> None:
    """Serve HTTP on 8888 and WebSocket on 9000."""
    server = ThreadingHTTPServer(("", 8888), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with serve(echo, "", 9000) as websockets:
        websockets.serve_forever()


if __name__ == "__main__":
    main()
