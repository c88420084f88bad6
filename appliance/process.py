"""The one module of this package that starts programs; what both packages need lives in `reservoir.process`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from reservoir.errors import ProcessError, UnavailableError
from reservoir.process import failure, require, run, stream

__all__ = ["attach", "failure", "require", "run", "stream", "succeeds"]


def attach(command: Sequence[str | Path], *, cure: str = "") -> None:
    """Run a program whose output goes straight to ours, as it comes; raises ProcessError when it fails."""
    words = [str(word) for word in command]
    try:
        code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise UnavailableError(f"cannot start {words[0]}: {error.strerror}", where=words[0], cure=cure) from error
    if code != 0:
        raise ProcessError(f"{Path(words[0]).name} ended with code {code}", where=" ".join(words), cure=cure)


def succeeds(command: Sequence[str | Path]) -> bool:
    """Say whether a program ends with code 0; what it prints is of no interest."""
    try:
        run(command)
    except ProcessError:
        return False
    return True
