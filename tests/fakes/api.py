"""The control API as it is served, but for its engine: containers and shells that exist only in memory."""

from __future__ import annotations

from api import settings
from api.console.app import add_console
from api.endpoints import server
from tests.fakes.engine import FakeEngine


def main() -> None:
    """Serve by the environment until SIGTERM."""
    server.serve(settings.load(), FakeEngine(), pages=add_console)


if __name__ == "__main__":
    main()
