"""The control API as it is served, but for its engine: containers and shells that exist only in memory."""

from __future__ import annotations

from api import settings
from api.endpoints import server
from tests.fakes.engine import NullEngine


def main() -> None:
    """Serve by the environment until SIGTERM."""
    setattr(server, "DirectEngine", lambda _context: NullEngine())  # noqa: B010 -- a stand-in of another type
    server.serve(settings.load())


if __name__ == "__main__":
    main()
