"""The version of Docker's API that is spoken. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance.agent.docker.containers import OLDEST_API
from common.errors import UnavailableError

NEWEST_API = "1.45"
"""The newest that the SDK knows; what an engine changes with a later one is known to nobody here."""


def choose(told: Mapping[str, Any]) -> str:
    """Return the newest version that an engine and we both speak, by its answer to `version`; raises UnavailableError.

    An old engine knows no newer ones, and a new one refuses old ones: no single version does for both.
    """
    oldest, newest = str(told.get("MinAPIVersion", OLDEST_API)), str(told["ApiVersion"])
    chosen = min(newest, NEWEST_API, key=_number)
    if _number(chosen) < max(_number(oldest), _number(OLDEST_API)):
        raise UnavailableError(
            f"the Docker Engine speaks {oldest} to {newest} of its API, and the agent {OLDEST_API} to {NEWEST_API}",
            where="Docker",
            hint="install an engine that the bundle has, or upgrade the node's agent",
        )
    return chosen


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
