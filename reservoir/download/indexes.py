"""Package indexes from which this machine takes Python packages, as pip is configured on it."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass

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
        """Return the same for uv; all indexes count alike, as they do for pip."""
        words = ["--index-strategy", "unsafe-best-match"]
        words += ["--default-index", self.index] if self.index else []
        words += [word for url in self.extra for word in ("--index", url)]
        words += [word for place in self.links for word in ("--find-links", place)]
        return words + (["--no-index"] if self.offline else [])

    @property
    def addresses(self) -> list[str]:
        """Return every address, with the user and password that it may carry."""
        return [*([self.index] if self.index else []), *self.extra, *self.links]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment for uv."""
        return settings.environment(SSL_CERT_FILE=self.certificates) if self.certificates else settings.environment()


def machine() -> Indexes:
    """Return what `pip config list` says on this machine."""
    try:
        out = process.run([sys.executable, "-m", "pip", "config", "list"])
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
