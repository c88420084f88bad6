"""`penstock` forked from an interpreter that has loaded it, and its power cut right before a change to a disk.

Run as a module it is the command. Its arguments are the folder where changes count, before which of them it dies, the
file that they are told, and the words of the command; nothing counts where the first is empty.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests import forks

# that of a whole test
LIMIT_S = 1800


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code (-9: it was killed), what it printed, and the changes it got to if these count."""

    code: int
    stdout: str
    stderr: str
    changes: list[str]

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.stdout + self.stderr


def run(
    *words: str | Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    below: Path | None = None,
    before: int | None = None,
) -> Ended:
    """Run `penstock reservoir`; `environment` comes to that of the tests.

    With `below`, changes in that folder count, and with `before`, it is killed right before the one so numbered.
    """
    with tempfile.NamedTemporaryFile("r") as told:
        cut = ["" if below is None else below, "" if before is None else str(before), told.name]
        command = [sys.executable, "-m", __name__, *cut, "reservoir", *words]
        done = forks.run(command, os.environ | dict(environment), timeout=LIMIT_S)
        return Ended(done.returncode, done.stdout, done.stderr, told.read().split())


def _become(below: str, before: str, told: str, *words: str) -> None:
    """Become the command."""
    from appliance.cli.app import main
    from reservoir.signing import openpgp_key
    from tests.integration.reservoir.changes import watch

    sys.argv = ["penstock", *words]
    if below:
        # a first publication makes a key: how long it is makes no difference to a power cut, but takes its time
        openpgp_key.BITS = 1024
        watch(below, int(before) if before else None, os.open(told, os.O_WRONLY))
    main()


if __name__ == "__main__":
    _become(*sys.argv[1:])
