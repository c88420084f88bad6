"""What fails as nobody has foreseen, and what becomes of the session at which it does."""

from __future__ import annotations

from api.control.reconcilers.failures import TRIES
from tests.api.cluster import Cluster

GIVEN_UP = f"the API failed {TRIES} times {{}}; tell the administrator, its log says why"


class Unforeseen(Exception):  # noqa: N818 - as a library would raise it
    """What nobody has foreseen."""


async def persist(cluster: Cluster, times: int = TRIES) -> None:
    """Let all that is due be done several times."""
    for _ in range(times):
        await cluster.settle()


async def outcome(cluster: Cluster, name: str = "bad") -> tuple[str, str]:
    session = await cluster.session(name)
    return session["state"], session["reason"]
