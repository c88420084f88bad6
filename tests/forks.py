"""Our programs as processes that cost no start of an interpreter: forked from one that has imported what they need.

A process is as if it had been started: arguments, environment and streams are its own, folder and network namespace its
caller's. The dynamic linker reads LD_LIBRARY_PATH when a process starts, and then no more: programs with another one
come from another interpreter.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, cast

ROOT = Path(__file__).parents[1]
PENSTOCK = Path(sys.executable).with_name("penstock")
NAMESPACE = Path("/proc/thread-self/ns/net")
REQUEST, NUMBER = 1 << 17, 32
_COMMANDS = ("account", "completion", "image", "node", "project", "session", "submit", "terminal", "user")
_OF_TYPER = ("encodings.idna", "pydantic.type_adapter", "zoneinfo")
_OF_API = ("api.endpoints.server", "typer", "uvloop")
_OF_GPUS = ("appliance.gpu.driver", "appliance.gpu.mps", "appliance.gpu.nvml", "appliance.gpu.telemetry")
IMPORTED = {
    "api": _OF_API,
    "tests.fakes.api": (*_OF_API, "tests.fakes.engine"),
    "appliance.agent": ("appliance.agent.server", "appliance.agent.shares.own_windows"),
    PENSTOCK.name: (*(f"appliance.cli.{name}" for name in _COMMANDS), *_OF_TYPER),
    "pip": ("pip._internal.commands.install", "pip._internal.operations.install.wheel"),
    "twine": ("twine.__main__", "twine.commands.upload"),
    "tests.integration.reservoir.loaded": ("tests.integration.reservoir.preloaded",),
    "-c": _OF_GPUS,
}
"""What the interpreter of each program imports before it forks: what the program itself would import."""


class Fork:
    """A process, with as much of `subprocess.Popen` as tests use."""

    def __init__(self, words: Sequence[str], told: socket.socket) -> None:
        self.args, self._told = words, told
        self.pid = int(told.recv(NUMBER))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not wait([self._told], timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._told.recv(NUMBER))
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    words: Sequence[str | Path],
    env: Mapping[str, str],
    stdin: IO[Any] | None = None,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
) -> Fork:
    """Start what `subprocess.Popen` would start; a stream that is not given leads nowhere."""
    program, *arguments = (str(word) for word in words if word != sys.executable)
    kind = arguments[0] if program == "-m" else Path(program).name
    request = {"program": program, "arguments": arguments, "environment": dict(env), "folder": str(Path.cwd())}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, Path(os.devnull).open("r+b") as nothing, NAMESPACE.open("rb") as namespace:
        handles = [
            each.fileno() for each in (stdin or nothing, stdout or nothing, stderr or nothing, namespace, theirs)
        ]
        socket.send_fds(_interpreter(kind, env.get("LD_LIBRARY_PATH", "")), [json.dumps(request).encode()], handles)
    return Fork([program, *arguments], ours)


def run(
    words: Sequence[str | Path], env: Mapping[str, str], stdin: str = "", timeout: float = 60, *, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it writes is kept."""
    with ExitStack() as stack:
        given, written, errors = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        process = start(words, env, given, written, errors)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        written.seek(0)
        errors.seek(0)
        done = subprocess.CompletedProcess(process.args, process.wait(), written.read(), errors.read())
    assert not check or done.returncode == 0, done
    return done


@cache
def _interpreter(kind: str, libraries: str) -> socket.socket:
    """Start an interpreter and return where it takes requests; it ends when that is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # a library that starts threads of its own could not be forked
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": libraries, "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-m", __name__, str(theirs.fileno()), *IMPORTED[kind]]
    nothing = subprocess.DEVNULL
    with theirs:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdin=nothing, stdout=nothing, pass_fds=[theirs.fileno()]
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Fork a process for each request, and tell the asker how it ends. Returns in these processes alone."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        for each in cast("list[int]", wait([requests.fileno(), *running])):
            if each in running:
                pid, asker = running.pop(each)
                with suppress(BrokenPipeError):
                    os.write(asker, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(asker)
                os.close(each)
                continue
            request, handles, _, _ = socket.recv_fds(requests, REQUEST, 5)
            if not request:
                os._exit(0)
            assert len([*Path("/proc/self/task").iterdir()]) == 1, "a process with threads cannot be forked"
            if (pid := os.fork()) == 0:
                requests.detach()
                _take(handles)
                return dict(json.loads(request))
            *others, asker = handles
            for handle in others:
                os.close(handle)
            os.write(asker, b"%d" % pid)
            running[os.pidfd_open(pid)] = pid, asker


def _take(handles: Sequence[int]) -> None:
    """Have the streams of the caller, be in its network namespace, and keep nothing else open."""
    for number, handle in enumerate(handles[:3]):
        os.dup2(handle, number)
    if ctypes.CDLL(None, use_errno=True).setns(handles[3], 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))


def _become(program: str, arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(":"))
    sys.argv = [program, *arguments]
    if program == "-c":
        code = sys.argv.pop(1)
        exec(code, {"__name__": "__main__"})
    elif program == "-m":
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _end(code: int) -> None:
    """End as an interpreter does, but for the clearing of its memory, which takes longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    # nobody collects these again, so that they stay the same memory for all
    gc.freeze()
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        _become(**program)
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        _end(int(end.code or 0))
    _end(0)
