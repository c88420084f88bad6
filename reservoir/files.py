"""The one writer of files that must never be found half written."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def write(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Write a file beside, wait until it is on the disk, and give it its name: readers see the old one or the new one.

    Text is written as UTF-8. An interruption leaves the old file; raises OSError where there is no room or no right.
    """
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        beside = Path(file.name)
        try:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
