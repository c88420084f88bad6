"""Settings from the environment; no other module of this package reads it."""

from __future__ import annotations

import getpass
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.settings.disk import STOP_PERCENT
from common.settings.package_index import PackageIndexSettings

DEFAULT_ROOT = Path("/var/lib/penstock/reservoir")


@dataclass(frozen=True)
class Settings:
    """Where things lie on this machine.

    `cache` holds downloads and built parts by hash, `signing_key` is the integrator's private key,
    `timestamp` is the moment (seconds since 1970) that goes into what is made now.
    """

    cache: Path
    signing_key: Path
    timestamp: int

    @property
    def known_sites(self) -> Path:
        """Return the folder of the sites whose receipts count."""
        return self.signing_key.parent / "sites"


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings that the environment gives, or their defaults."""
    home = Path(environ.get("HOME", "/root"))
    cache = Path(environ.get("XDG_CACHE_HOME", home / ".cache")) / "penstock"
    config = Path(environ.get("XDG_CONFIG_HOME", home / ".config")) / "penstock"
    return Settings(
        cache=Path(environ.get("PENSTOCK_CACHE", cache)),
        signing_key=Path(environ.get("PENSTOCK_SIGNING_KEY", config / "signing.key")),
        timestamp=int(environ.get("SOURCE_DATE_EPOCH", time.time())),
    )


def reservoir_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the store whose publication goes before uploads; only the server of uploads asks the environment."""
    return Path(environ.get("PENSTOCK_RESERVOIR", DEFAULT_ROOT))


def disk_stop_percent(environ: Mapping[str, str] = os.environ) -> int:
    """Return how full the store's disk may be while something is uploaded or imported."""
    return int(environ.get("PENSTOCK_DISK_STOP_PERCENT", STOP_PERCENT))


def uploads_quota(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes of uploads an account may hold; only the server of uploads asks the environment."""
    return int(environ.get("PENSTOCK_UPLOADS_QUOTA_MIB", PackageIndexSettings().account_quota_mib)) << 20


def installer_key() -> Path:
    """Return where install.sh keeps the public key that it was given by --key; there is none where it was not."""
    return Path(sys.prefix) / "bundle.pub"


def signing_password(path: Path, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """Return the password of the signing key at `path`, from the file that is named for it or from the terminal.

    Nothing comes back where neither has one.
    """
    if named := environ.get("PENSTOCK_SIGNING_PASSWORD_FILE"):
        return Path(named).read_bytes().rstrip(b"\r\n") or None
    return getpass.getpass(f"password of {path}: ").encode() or None if sys.stdin.isatty() else None


def environment(**changes: str | None) -> dict[str, str]:
    """Return the environment for a program that we start, with `changes`; None takes a variable away."""
    merged = {**os.environ, **{key: value for key, value in changes.items() if value is not None}}
    return {key: value for key, value in merged.items() if changes.get(key, "") is not None}


def bare_environment(**values: str) -> dict[str, str]:
    """Return an environment with nothing of the user's but where programs lie."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"} | values


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process's own environment for a while, for a library that reads it."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
