"""When two references mean the same image, as the container engine reads them. Pure."""

from __future__ import annotations

import re

_HUB = re.compile(r"^(index\.)?docker\.io/(library/)?|^library/")
_ID = re.compile(r"^(sha256:)?(?P<digits>[0-9a-f]{4,64})$")


def full(reference: str) -> str:
    """Return a reference without what may be left out, and with the tag that is meant where none is written."""
    name, at, digest = _HUB.sub("", reference).partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, "latest"
    return f"{repository}@{digest}" if at else f"{repository}:{tag}"


def means(wanted: str, reference: str, digest: str) -> bool:
    """Return whether an engine takes `wanted` for the image of a reference, which it knows as `digest` too, if any."""
    if full(wanted) == full(reference):
        return True
    id_ = _ID.match(wanted)
    return id_ is not None and digest.removeprefix("sha256:").startswith(id_["digits"])
