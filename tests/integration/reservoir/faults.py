"""A power cut on demand: `penstock` runs in a child that dies by SIGKILL right before its N-th change to a disk.

The interpreter's audit events name each change. Run as a module it is the server that forks a child for each request,
so that a run costs no start of an interpreter; requests and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

CHANGES = {"os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate"}
ROOT = Path(__file__).parents[3]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its exit code (-9: the power cut), the changes it got to, and what it said."""

    code: int
    changes: list[str]
    said: str


class PowerCut:
    """Runs commands of `penstock`; changes below `folder` count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> PowerCut:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__, self.folder],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.communicate()

    def run(self, *words: str | Path, before: int | None = None, environment: dict[str, str] | None = None) -> Outcome:
        """Run a command; with `before`, cut the power right before that change, counted from 0."""
        request = {"words": [str(word) for word in words], "before": before, "environment": environment or {}}
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return Outcome(**json.loads(self._server.stdout.readline()))


def moments(changes: Sequence[str], most: int = 24) -> list[int]:
    """Return the moments worth a cut: the first, the middle and the last of each row of changes of one kind.

    Where these are too many, `most` of them, from the first to the last.
    """
    found: list[int] = []
    start = 0
    for _, row in groupby(changes):
        length = len(list(row))
        found += sorted({start, start + length // 2, start + length - 1})
        start += length
    step = (len(found) - 1) / (most - 1)
    return found if len(found) <= most else [found[round(index * step)] for index in range(most)]


def _serve(folder: str) -> None:
    import appliance.cli.reservoir  # noqa: F401 - loaded once for all children
    from appliance.cli.app import main

    for line in sys.stdin:
        request = json.loads(line)
        reader, writer = os.pipe()
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                os.close(reader)
                _child(main, request, folder, writer, output.fileno())
            os.close(writer)
            with os.fdopen(reader) as stream:
                changes = stream.read().split()
            _, status = os.waitpid(child, 0)
            output.seek(0)
            said = output.read().decode(errors="replace")
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "changes": changes, "said": said}), flush=True)


def _child(main: Callable[[], None], request: dict[str, Any], folder: str, writer: int, output: int) -> None:
    """Become the command; every change is told before it happens."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(request["environment"])
    sys.argv = ["penstock", *request["words"]]
    guard = threading.Lock()
    count = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if not _is_change(event, arguments, folder):
            return
        with guard:
            if count == request["before"]:
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()
            count += 1
            os.write(writer, f"{event}\n".encode())

    sys.addaudithook(watch)
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _is_change(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    if event == "open":
        path, _, flags = arguments
        return bool(flags & WRITING) and _below(path, folder)
    if event not in CHANGES:
        return False
    # a name may count from an open folder, whose number then stands last
    handle = arguments[-1] if isinstance(arguments[-1], int) and arguments[-1] >= 0 else None
    at = Path(f"/proc/self/fd/{handle}").readlink() if handle is not None and event != "os.chmod" else Path()
    return any(_below(argument, folder, at) for argument in arguments)


def _below(path: object, folder: str, at: Path = Path()) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and str(at / os.fsdecode(path)).startswith(folder)


if __name__ == "__main__":
    _serve(sys.argv[1])
