"""Packages for containers of Docker, which see files of their node."""

from __future__ import annotations

from pathlib import Path

from appliance.agent.site_files import AUTHORITY, PIP, pip_settings
from common import files
from common.errors import UnavailableError


def show(index: str, authority: Path, folder: Path) -> dict[str, Path]:
    """Return the files that containers see, by where they see them; none without an index.

    What is not in the folder yet is written there. Raises UnavailableError where that fails.
    """
    if not index:
        return {}
    file = folder / "pip.conf"
    text = pip_settings(index)
    try:
        # a file that a container has mounted is not written again without need
        if not file.is_file() or file.read_text() != text:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            files.write(file, text, 0o444)
    except OSError as error:
        raise UnavailableError(
            f"what containers see of the site's packages cannot be written: {error}",
            where=str(folder),
            hint="make room on the file system of this folder",
        ) from error
    return {PIP: file, AUTHORITY: authority}
