"""The site's nodes, as a file of this one names them: who is a node, and by which names sessions know it."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

from common.errors import UnavailableError


class SiteNodes:
    """A file with a line for each address of a node, its names behind it; read whenever it is needed.

    So a node that joins the site needs no restart of the other nodes' agents.
    """

    def __init__(self, path: Path | None) -> None:
        """Go by the file `path`; without one the site has no nodes."""
        self._path = path

    def addresses(self) -> list[IPv4Address]:
        """Return all addresses of nodes; raises UnavailableError where the file cannot be read."""
        return [address for address, _ in self._lines()]

    def hosts(self) -> dict[str, IPv4Address]:
        """Return the addresses by name; raises UnavailableError where the file cannot be read."""
        return {name: address for address, names in self._lines() for name in names}

    def _lines(self) -> list[tuple[IPv4Address, list[str]]]:
        if self._path is None:
            return []
        try:
            lines = [line.split() for line in self._path.read_text(encoding="utf-8").splitlines() if line.strip()]
            return [(IPv4Address(address), names) for address, *names in lines]
        except (OSError, ValueError) as error:
            raise UnavailableError(
                f"the list of the site's nodes cannot be read: {error}",
                where=str(self._path),
                hint="deploy the node again with `penstock site deploy`",
            ) from error
