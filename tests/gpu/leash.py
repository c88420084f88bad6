"""Ends a program with the one that started it, however that ends: nothing of the kit stays behind on a machine.

`python -m tests.gpu.leash PARENT PROGRAM ...` runs another program so; those that are set-uid leave the leash.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def hold(parent: int) -> None:
    """Let the kernel kill this process when `parent`, the process that started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    # it has ended already, and this process was given to another one
    if os.getppid() == 1 != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    hold(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
