"""Requests like the one that a session was submitted with, made of what the API tells of the session. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

AMOUNTS = ("gpu_milli", "cpu_milli", "memory_mib", "shm_mib", "enforcement")
"""Fields of a request that a preset says, too."""
_AS_TOLD = ("project", "image", "kind", "priority", "preemptible", "gpu_milli", "access")
_WHERE_SAID = (
    *("preset", "cpu_milli", "memory_mib", "shm_mib", "disk_mib", "group", "gpu_models", "rdma", "limit_s"),
    *("local_image", "command", "args", "ports"),
)


def request_like(session: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    """Return the body of a request for another session like one as the API tells of it, in JSON.

    It has no name, for that may be in use, and of the variables nothing, for their values are told to nobody. A start
    is taken over that has not come `at` this moment.
    """
    request: dict[str, Any] = {field: session[field] for field in _AS_TOLD}
    request |= {field: session[field] for field in _WHERE_SAID if session[field]}
    request["replicas"] = session["min_replicas"] or session["replicas"]
    if session["max_replicas"]:
        request["max_replicas"] = session["max_replicas"]
    if session["p2p"] is not None:
        request["p2p"] = session["p2p"]
    if session["enforcement"] != "none":
        request["enforcement"] = session["enforcement"]
    if session["within"] != "anywhere":
        request |= {"within": session["within"], "within_required": session["within_required"]}
    if session["starts_at"] and datetime.fromisoformat(session["starts_at"]) > at:
        request["starts_at"] = session["starts_at"]
    for field, named in (("pvcs", "volume"), ("volumes", "source")):
        if mounts := [_mount(mount, named) for mount in session["mounts"] if mount[named]]:
            request[field] = mounts
    return request


def _mount(mount: Mapping[str, Any], named: str) -> dict[str, Any]:
    field = "name" if named == "volume" else named
    return {field: mount[named], "target": mount["target"], "read_only": mount["read_only"]}
