"""Refusals of the container engine, as people of sessions read them: without paths of the node. Pure."""

from __future__ import annotations

import re

from docker.errors import APIError

_MOUNT = re.compile(r'mounting "[^"]*" to rootfs(?: at "(?P<target>[^"]*)")?')
_KINDS = ("not a directory", "read-only file system", "permission denied", "no such file or directory")
_OWN = re.compile(r'"?/(?:run|var/(?:lib|run))/[^\s":,]*"?')
"""Folders of the node, in which engine and agent keep what they make."""


def reason_of(error: APIError) -> str:
    """Return what the engine says."""
    return str(error.explanation or error).strip().rstrip(".")


def told(reason: str) -> str:
    """Return why a container is not started, from what the engine says of it."""
    if not (found := _MOUNT.search(reason)):
        return _OWN.sub("a folder of the node", reason)
    target = re.sub(r"^.*/merged(?=/)", "", found["target"] or "")
    kind = next((kind for kind in _KINDS if kind in reason), "")
    if kind == "not a directory":
        kind = "the image has a file there, or what is mounted is one"
    where = f" at {target}" if target else ""
    return f"nothing can be mounted{where}{f': {kind}' if kind else ''}; choose another target"
