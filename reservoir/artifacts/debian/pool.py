"""Places of Debian packages in a repository, and the fields of their entries."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from common.errors import IntegrityError

SOURCE = r"[A-Za-z0-9][A-Za-z0-9.+-]*"


def pool_path(release: str, source: str, filename: str) -> PurePosixPath:
    """Return where a package lies in a repository, by the name of its source as Debian does.

    Each release has a pool of its own, as sources beside Debian may use one file name in several. Raises
    IntegrityError where that name would lead elsewhere.
    """
    source = source.split(maxsplit=1)[0]
    if re.fullmatch(SOURCE, source) is None:
        raise IntegrityError(
            f"{source} is not the name of a source package", where=filename, hint="get the bundle again from its maker"
        )
    letter = source[:4] if source.startswith("lib") else source[:1]
    return PurePosixPath("pool", release, letter, source, filename)


def field(stanza: str, name: str) -> str:
    """Return the value of a one-line field, or nothing."""
    for line in stanza.splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return ""
