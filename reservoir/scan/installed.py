"""Packages inside images from elsewhere, read out of their layers once and remembered."""

from __future__ import annotations

import json
from collections.abc import Iterable

from common import files
from reservoir.artifacts.image import contents
from reservoir.artifacts.image.contents import Contents
from reservoir.artifacts.image.system import Installed
from reservoir.contents.artifact import ImageArtifact
from reservoir.download.cache import Cache

# counts up when the same image gives other packages
READING = 1


def read_all(images: Iterable[ImageArtifact], cache: Cache) -> dict[str, Contents]:
    """Return what is inside of images by their hashes; what was read once is remembered in the cache."""
    memory = cache.root / f"installed-{READING}.json"
    try:
        said = json.loads(memory.read_bytes())
        known = {
            sha256: Contents(tuple(Installed(**one) for one in entry["packages"]), entry["unread"])
            for sha256, entry in said.items()
        }
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        known = {}
    wanted = dict.fromkeys(image.sha256 for image in images)
    new = {sha256: contents.read(sha256, cache.path) for sha256 in wanted if sha256 not in known}
    known |= new
    if new:
        lasting = {
            sha256: {"packages": [vars(one) for one in entry.packages], "unread": entry.unread}
            for sha256, entry in sorted(known.items())
            if not entry.again
        }
        files.write(memory, json.dumps(lasting).encode())
    return {sha256: known[sha256] for sha256 in wanted}
