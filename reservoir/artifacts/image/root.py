"""Root file systems of images: changed from inside, by programs that see nothing else of this machine.

Every Debian root has absolute links (`/var/run`, `/usr/bin/awk`), which lead to files of the machine that builds when
they are followed from outside.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from common import process

ISOLATED = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
"""In name spaces of its own: mounts and whatever a package starts go away with it, even when it is killed."""
INSIDE = Path(__file__).with_name("inside.py")

Change = Mapping[str, str | int]
"""A change, as `reservoir.artifacts.image.inside` takes it: what to `do`, and its arguments."""


def write(path: str, content: str, mode: int = 0o644) -> Change:
    """Write a file, with the folders above it."""
    return {"do": "write", "path": path, "content": content, "mode": mode}


def empty(path: str) -> Change:
    """Empty a file, where it is there."""
    return {"do": "empty", "path": path}


def make(path: str) -> Change:
    """Make a folder, with those above it."""
    return {"do": "make", "path": path}


def remove(path: str) -> Change:
    """Take away a file, a link or a whole folder; nothing there is as well."""
    return {"do": "remove", "path": path}


def clean(pattern: str) -> Change:
    """Take away all that a pattern matches."""
    return {"do": "clean", "pattern": pattern}


def change(root: Path, changes: Iterable[Change]) -> None:
    """Make changes in a root file system, in order; needs root. Raises ProcessError that names what failed."""
    process.run([sys.executable, "-I", INSIDE, root], stdin=json.dumps(list(changes)))
