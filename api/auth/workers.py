"""The workers of the site, as its list names them: nobody else may be an agent, whatever certificate is shown."""

from __future__ import annotations

from pathlib import Path

import structlog

log = structlog.get_logger()


class Workers:
    """The names in a file, one a line; read again when it has changed, so that a new node needs no restart."""

    def __init__(self, path: Path | None) -> None:
        """Go by the file `path`; without one everybody is a worker."""
        self._path = path
        self._version = (0, 0)
        self._names: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Return whether a node is a worker; where the file cannot be read, what it said last counts."""
        return self._path is None or name in self.names()

    def names(self) -> frozenset[str]:
        """Return the names of the list, none without one; where it cannot be read, what it said last counts."""
        if self._path is None:
            return frozenset()
        try:
            status = self._path.stat()
            if (version := (status.st_mtime_ns, status.st_ino)) != self._version:
                self._names = frozenset(self._path.read_text(encoding="utf-8").split())
                self._version = version
        except (OSError, UnicodeDecodeError) as error:
            log.warning("the list of workers cannot be read", path=str(self._path), reason=str(error))
        return self._names
