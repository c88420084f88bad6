"""The last release as it was: its tree, from the history of this repository, run by the interpreter of this one.

`last_release.txt` names its commit. A release writes its own there when it is out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests import once

ROOT = Path(__file__).parents[1]
COMMIT = Path(__file__).with_suffix(".txt")
PACKAGES = ("api", "appliance", "common")
"""What API and agent are made of."""


def tree() -> Path:
    """Return a folder with the packages of the last release."""
    return once.once("last-release", _unpack)


def start(
    words: Sequence[str | Path],
    env: Mapping[str, str],
    stdin: IO[Any] | int | None = subprocess.DEVNULL,
    stdout: IO[Any] | int | None = subprocess.DEVNULL,
    stderr: IO[Any] | int | None = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program of the last release, as `forks.start` does one of this tree."""
    program, *arguments = (str(word) for word in words if word != sys.executable)
    environment = {**env, "PYTHONPATH": str(tree()), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, program, *arguments], cwd=tree(), env=environment, stdin=stdin, stdout=stdout, stderr=stderr
    )


def _unpack(folder: Path) -> None:
    commit = COMMIT.read_text().strip()
    # whoever runs tests need not own the checkout
    words = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "archive", commit, *PACKAGES]
    archive = subprocess.run(words, capture_output=True, check=False, env={"PATH": os.environ["PATH"]})
    assert archive.returncode == 0, (
        f"the last release, {commit}, is not in the history of this checkout: {archive.stderr.decode().strip()}; "
        "fetch it whole (`git fetch --unshallow`, or a fetch depth of 0 where CI clones)"
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
