"""Users and passwords in addresses of package sources: read where they stand when they are used, and never kept."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Login:
    """Who asks at a server, for what lies at or near `path`; `server` is scheme, host and port."""

    server: tuple[str, str, int]
    path: str
    user: str
    password: str

    @property
    def place(self) -> str:
        """Return the address, with the port where it is not the scheme's own."""
        scheme, host, port = self.server
        name = f"[{host}]" if ":" in host else host
        return f"{scheme}://{name}{'' if port == PORTS[scheme] else f':{port}'}{self.path}"


def public(address: str) -> str:
    """Return an address without the user and password that it may carry."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else address


def logins(addresses: Iterable[str]) -> list[Login]:
    """Return the users and passwords that stand in addresses of HTTP servers."""
    return list(_logins(addresses))


def login(known: Iterable[Login], address: str) -> Login | None:
    """Return who asks for an address: among several of one server the one whose own address has most in common."""
    server, path = _place(address)
    fitting = [one for one in known if one.server == server]
    return max(fitting, key=lambda one: len(posixpath.commonpath([one.path, path])), default=None)


def _logins(addresses: Iterable[str]) -> Iterator[Login]:
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme in PORTS and parts.username is not None:
            server, path = _place(address)
            yield Login(server, path, unquote(parts.username), unquote(parts.password or ""))


def _place(address: str) -> tuple[tuple[str, str, int], str]:
    parts = urlsplit(address)
    return (parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)), parts.path or "/"
