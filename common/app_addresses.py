"""Addresses of the apps of sessions: by a path on an origin of all apps, or each by a name of its own. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

_LABEL = re.compile(r"(?P<port>[1-9][0-9]{0,4})-(?P<session>[0-9a-f]{32})")
_PORT = re.compile(r":[0-9]+$")
MAX_LABEL = 63


@dataclass(frozen=True)
class AppName:
    """What a name of its own says of an app: the session, which no other one ever takes the place of, and the port."""

    session_id: UUID
    port: int

    @property
    def label(self) -> str:
        """The first part of the name."""
        return f"{self.port}-{self.session_id.hex}"


@dataclass(frozen=True)
class AppAddresses:
    """Where a site offers apps: `url` is the origin of all, empty where there is none, and `name` the wildcard's.

    With a `name` each app is at `https://LABEL.name`, by the port of `url`.
    """

    url: str = ""
    name: str = ""

    @property
    def policy(self) -> str:
        """The origins of apps as a Content-Security-Policy names them, empty where there are none."""
        if not self.url:
            return ""
        return self.origin("*") if self.name else self.url

    def origin(self, label: str) -> str:
        """Return the origin of a label."""
        port = _PORT.search(self.url)
        return f"https://{label}.{self.name}{port[0] if port else ''}"

    def address(self, session_id: UUID, port: int, path: str, base_path: str | None) -> str | None:
        """Return where people open an app; one that was told its own path knows no other."""
        if not self.url:
            return None
        if not self.name:
            return f"{self.url}/{base_path or path}/"
        return f"{self.origin(AppName(session_id, port).label)}/{f'{base_path}/' if base_path else ''}"

    def named(self, host: str) -> AppName | None:
        """Return which app a host is for, of which a request says the port, too; None where it is no app's name."""
        name = _PORT.sub("", host).lower()
        if not self.name or not name.endswith(f".{self.name}"):
            return None
        found = _LABEL.fullmatch(name.removesuffix(f".{self.name}"))
        return AppName(UUID(found["session"]), int(found["port"])) if found else None

    def is_own_host(self, host: str) -> bool:
        """Return whether an authority is that of an app with a name of its own, by the port of apps."""
        named = self.named(host)
        return named is not None and f"https://{host}" == self.origin(named.label)
