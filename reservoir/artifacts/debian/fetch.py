"""The download of Debian packages, which is apt's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from common.errors import PenstockError
from reservoir.artifacts.debian.apt import PrivateApt, private_apt
from reservoir.artifacts.kind import DOWNLOADS, Order
from reservoir.contents.artifact import DebianArtifact
from reservoir.download.threads import in_threads

DEBS_A_BATCH = 24


def fetch(order: Order, missing: Sequence[DebianArtifact]) -> None:
    """Bring Debian packages into the cache, each by the apt of the first target that it is for."""
    for target in order.manifest.targets:
        mine = [deb for deb in missing if deb.targets[0] == target.name]
        if mine:
            apt = private_apt(order.cache, target, order.manifest, order.folder)
            batches = [mine[start : start + DEBS_A_BATCH] for start in range(0, len(mine), DEBS_A_BATCH)]
            in_threads(partial(_download, apt, order), batches, DOWNLOADS)


def _download(apt: PrivateApt, order: Order, batch: Sequence[DebianArtifact]) -> None:
    """Download some packages; those that came before a failure are kept."""
    cache = order.cache
    try:
        apt.download([(deb.origin, deb.sha256, cache.partial(deb.sha256)) for deb in batch])
    except PenstockError:
        for deb in batch:
            path = cache.partial(deb.sha256)
            if path.is_file() and path.stat().st_size == deb.size:
                cache.accept(path, deb.sha256, deb.origin)
        raise
    for deb in batch:
        cache.accept(cache.partial(deb.sha256), deb.sha256, deb.origin)
        order.note(deb.size)
