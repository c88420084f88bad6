"""The rehearsal of a publication: what a build signs can be published, as it was."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from common.errors import IntegrityError
from common.progress import Progress
from reservoir.artifacts import kinds
from reservoir.artifacts.kind import AGAIN
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import WORK, Cache, space_on
from reservoir.signing import openpgp

HINT = "take another version in the manifest, or ask whoever made it"


def rehearse(bundle: Bundle, cache: Cache, progress: Progress) -> None:
    """Publish a bundle whose blobs lie in the cache into a folder that goes away.

    Raises IntegrityError that lists what checks find, or else what the publication itself does not take.
    """
    progress("rehearse the publication")
    if problems := kinds.check_new([bundle], cache.path):
        raise IntegrityError.of([replace(one, hint=HINT) if one.hint == AGAIN else one for one in problems])
    with space_on(cache.root), tempfile.TemporaryDirectory(prefix=WORK, dir=cache.root) as folder:
        kinds.publish([bundle], Path(folder) / "tree", cache.blobs, openpgp.new_key(), progress)
