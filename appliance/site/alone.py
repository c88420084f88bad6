"""The lock of a site's state: one deploy or installation at a time, a killed deploy among them while its Ansible runs.

The lock is taken exclusively and kept shared, so that Ansible can hold it beside the deploy that started it. The file
says who holds it. `install.sh` takes it, too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

from common.errors import ConflictError, UnavailableError

LOCK = "lock"
HINT = "wait until it has ended; of a deploy that was killed, Ansible ends its present task first"
UNDER_LOCK = """\
test "$PPID" = "$1" || exit
echo "pid $$, $2, \\`kill -- -$$\\` ends it at once" > "$3"
shift 3
exec "$@"
"""
"""Starts a program unless the deploy that wanted it is gone, for then another one may have begun."""


class Alone:
    """The lock, held."""

    def __init__(self, path: Path) -> None:
        """Take note of where it is; `alone` has taken it."""
        self._path = path
        self._since = f"started {datetime.now(UTC):%FT%TZ}"
        self.tell()

    def tell(self) -> None:
        """Say in the file that this process holds the lock."""
        self._path.write_text(f"pid {os.getpid()}, {self._since}\n", encoding="utf-8")

    def command(self, log: Path) -> list[str]:
        """Return what stands in front of a command so that it holds the lock, too.

        The file says then where its log is, and how to end the group of processes that the command leads.
        """
        said = f"{self._since}, its log is {log}"
        under = ["sh", "-c", UNDER_LOCK, "sh", str(os.getpid()), said, str(self._path)]
        return ["flock", "--shared", "--nonblock", "--no-fork", str(self._path), *under]


@contextmanager
def alone(state: Path) -> Iterator[Alone]:
    """Hold the state folder, which is made where it is missing; raises ConflictError while another deploy runs."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.chmod(0o700)
        lock = (state / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"the state of the site cannot be written: {error.strerror}", where=str(state), hint="run as root"
        ) from error
    with lock:
        _take(lock, state / LOCK)
        yield Alone(state / LOCK)


def is_held(state: Path) -> bool:
    """Return whether somebody holds the state folder, who may restart anything of the site just now."""
    try:
        with (state / LOCK).open("a+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _take(lock: TextIOWrapper, path: Path) -> None:
    try:
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        who = lock.read().strip()
        raise ConflictError(
            "a deploy or a backup of this site is still running" + (f" ({who})" if who else ""),
            where=str(path),
            hint=HINT,
        ) from error
