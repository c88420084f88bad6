"""The headers of RPM packages as a publication reads them, so that checks before it refuse the same ones."""

from __future__ import annotations

import tempfile
from pathlib import Path

from common.errors import UnavailableError
from reservoir.artifacts.rpm import signature


def unreadable(path: Path) -> str:
    """Return why a publication could not take a package, or nothing.

    Where the library of publications is missing, as on a machine that only verifies, our own reading has to do.
    """
    if reason := signature.malformed(path):
        return reason
    try:
        from reservoir.artifacts.rpm.createrepo import createrepo_c
    except UnavailableError:
        return ""
    # the headers alone: the library would hash the whole file
    with tempfile.NamedTemporaryFile(suffix=".rpm") as headers:
        headers.write(signature.headers(path))
        headers.flush()
        try:
            createrepo_c.package_from_rpm(headers.name, createrepo_c.SHA256)
        except (createrepo_c.CreaterepoCError, OSError, ValueError) as error:
            return f"it is no RPM package: {str(error).replace(headers.name, 'its headers')}"
    return ""
