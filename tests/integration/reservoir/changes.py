"""What a command changes on a disk, as the interpreter's audit events name it, and a power cut right before that."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def watch(folder: str, before: int | None, told: int) -> None:
    """Tell a file each change below a folder before it happens; die by SIGKILL right `before` the one so numbered."""
    guard = threading.Lock()
    count = 0

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if not _is_change(event, arguments, folder):
            return
        with guard:
            if count == before:
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()
            count += 1
            os.write(told, f"{event}\n".encode())

    sys.addaudithook(see)


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
