"""The environment of an API that runs as a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.agent.conftest import Authority


def api_environment(authority: Authority, database_url: str, address: int | Path) -> dict[str, str]:
    """Return what an API needs that agents trust; it serves with TLS at a port, or without at a socket."""
    certificate, key = authority.issue("master")
    environment = {
        "PATH": os.environ["PATH"],
        "PENSTOCK_API_DATABASE_URL": database_url,
        "PENSTOCK_API_AGENT_CA": str(authority.ca),
        "PENSTOCK_API_AGENT_CERT": str(certificate),
        "PENSTOCK_API_AGENT_KEY": str(key),
    }
    if isinstance(address, Path):
        return environment | {"PENSTOCK_API_SOCKET": str(address)}
    served = {"PENSTOCK_API_PORT": address, "PENSTOCK_API_TLS_CERT": certificate, "PENSTOCK_API_TLS_KEY": key}
    return environment | {name: str(value) for name, value in served.items()}
