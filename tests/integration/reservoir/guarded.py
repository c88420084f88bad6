"""A web server that asks for a user and a password, and a search for that password where nobody may find it."""

from __future__ import annotations

import base64
import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER, PASSWORD = "ada", "open@sesame"
WRITTEN = "ada:open%40sesame"
EXPECTED = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder to those who know the password."""

    def do_HEAD(self) -> None:
        if self._known():
            super().do_HEAD()

    def do_GET(self) -> None:
        if self._known():
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _known(self) -> bool:
        if self.headers.get("Authorization") == EXPECTED:
            return True
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False


@contextmanager
def guarded(folder: Path) -> Iterator[int]:
    """Serve a folder on this machine to those who know the password; gives the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def telling(*folders: Path) -> list[str]:
    """Return the files that others may read and that hold the password, however it is written."""
    words = (PASSWORD.encode(), b"open%40sesame", EXPECTED.removeprefix("Basic ").encode())
    return [
        str(path)
        for folder in folders
        for path in (folder.rglob("*") if folder.is_dir() else [folder])
        if path.is_file() and path.stat().st_mode & 0o077 and any(word in path.read_bytes() for word in words)
    ]
