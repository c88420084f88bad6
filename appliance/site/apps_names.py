"""Names of apps: whether any name below the one that a site has for them leads to its master."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection

from appliance.site.model import Site
from common.checks import Check, CheckState

IDENTITY, NAME = "apps.name", "names of apps lead to the master"

Resolver = Callable[[str], Collection[str]]
"""Returns the addresses of a name; raises OSError where there are none."""


def addresses_of(name: str) -> set[str]:
    """Ask the name servers of this machine."""
    return {str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}


def checks(site: Site, resolve: Resolver = addresses_of) -> list[Check]:
    """Look up a name that nobody has thought of; nothing where apps have no names of their own.

    People's machines may ask other name servers than the controller: what is not found there is a warning alone.
    """
    if site.edge.apps_name is None:
        return []
    wildcard, address = site.edge.apps_wildcard, str(site.master.address)
    hint = f"have the name servers say {address} for {wildcard}, or leave `edge.apps_name` out"
    try:
        found = sorted(resolve(f"{secrets.token_hex(8)}.{site.edge.apps_name}"))
    except OSError as error:
        said = f"{wildcard} is not found from {site.reservoir.name}: {error.strerror or error}"
        return [Check(IDENTITY, NAME, CheckState.WARN, said, hint)]
    said = f"{wildcard} is {', '.join(found)}"
    return [Check.of(IDENTITY, NAME, ok=found == [address], evidence=said, hint=hint)]
