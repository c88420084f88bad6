"""References of images, and when two mean the same one, as the container engine reads them. Pure."""

from __future__ import annotations

import re

_HUB = re.compile(r"^(index\.)?docker\.io/(library/)?|^library/")
_ID = re.compile(r"^(sha256:)?(?P<digits>[0-9a-f]{4,64})$")


def full(reference: str) -> str:
    """Return a reference without what may be left out, and with the tag that is meant where none is written."""
    repository, tag, digest = _parts(reference)
    return f"{repository}@{digest}" if digest else f"{repository}:{tag}"


def means(wanted: str, reference: str, digest: str) -> bool:
    """Return whether an engine takes `wanted` for the image of a reference, which it knows as `digest` too, if any.

    Some engines name an image by the digest that its registry has for it: then that digest means it in its repository.
    """
    if full(wanted) == full(reference):
        return True
    known = digest.rpartition("@")[2]
    repository, _, pinned = _parts(wanted)
    if pinned:
        return pinned == known and repository == _parts(reference)[0]
    id_ = _ID.match(wanted)
    return id_ is not None and known.removeprefix("sha256:").startswith(id_["digits"])


def _parts(reference: str) -> tuple[str, str, str]:
    """Return repository, tag and digest, this empty where none is written."""
    name, _, digest = _HUB.sub("", reference).partition("@")
    repository, colon, tag = name.rpartition(":")
    return (repository, tag, digest) if colon and "/" not in tag else (name, "latest", digest)
