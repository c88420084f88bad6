"""Upgrade of what is installed here: the installer of this version checks a bundle by what this version trusts.

Nothing of the bundle runs before it was checked, not even its own installer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from reservoir.bundle import bundles


def command(bundle: Path, words: Sequence[str | Path] = ()) -> list[str]:
    """Return the command that installs from a bundle, with more words for the installer.

    It runs on the interpreter below this environment, which the installer replaces.
    """
    installer = bundles.installer_path("bootstrap.py")
    return [str(Path(sys.executable).resolve()), "-I", str(installer), "--bundle", str(bundle), *map(str, words)]
