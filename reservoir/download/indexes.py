"""Package indexes from which this machine takes Python packages, as pip is configured on it."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from common import process
from common.errors import ProcessError, UnavailableError
from reservoir import settings


@dataclass(frozen=True)
class Indexes:
    """Where this machine takes Python packages from, as pip is configured on it."""

    index: str | None
    extra: list[str]
    links: list[str]
    offline: bool
    certificates: str | None

    @property
    def options(self) -> list[str]:
        """Return what tells uv how to choose; where to look stands in the environment.

        The first index that has a version that fits counts, an extra one before the default one: another index cannot
        bring in a newer version of what is one's own. It may help out where no version of the first fits, as mirrors
        are often divided among several indexes.
        """
        return ["--index-strategy", "unsafe-first-match", *(["--no-index"] if self.offline else [])]

    @property
    def addresses(self) -> list[str]:
        """Return every address, with the user and password that it may carry."""
        return [*([self.index] if self.index else []), *self.extra, *self.links]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment for uv; addresses stand there, as every user of a machine sees its command lines."""
        told = {
            "SSL_CERT_FILE": self.certificates or "",
            "UV_DEFAULT_INDEX": self.index or "",
            "UV_INDEX": " ".join(self.extra),
            # uv parts them at commas
            "UV_FIND_LINKS": ",".join(_without_commas(place) for place in self.links),
        }
        return settings.environment(**{name: value for name, value in told.items() if value})


def _without_commas(place: str) -> str:
    if "," not in place:
        return place
    return (place if "://" in place else Path(place).absolute().as_uri()).replace(",", "%2C")


def machine() -> Indexes:
    """Return what `pip config list` says on this machine."""
    try:
        out = process.run([sys.executable, "-P", "-m", "pip", "config", "list"])
    except ProcessError as error:
        raise UnavailableError("pip is not installed", where="pip", hint="install penstock[build]") from error
    values: dict[str, str] = {}
    # pip's own order of precedence: the environment last
    for section in ("global", "install", ":env:"):
        for line in out.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                values[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return Indexes(
        index=values.get("index-url"),
        extra=values.get("extra-index-url", "").split(),
        links=values.get("find-links", "").split(),
        offline=values.get("no-index", "").lower() in ("1", "true", "yes", "on"),
        certificates=values.get("cert"),
    )
