"""A process that was forked instead of started is as one that was started, and two of them are not alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.integration.own_engine import OwnEngine

TELL = """
import json, os, resource, signal, sys, threading, time
print(json.dumps({
    "name": __name__,
    "arguments": sys.argv,
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "zone": time.tzname,
    "path": sys.path[1],
    "group": [os.getpgrp(), os.getsid(0)],
    "network": os.readlink("/proc/self/ns/net"),
    "signals": [[int(number), str(signal.getsignal(number))] for number in signal.valid_signals()],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": sorted(os.listdir("/proc/self/fd")),
    "threads": [thread.name for thread in threading.enumerate()],
    "umask": os.umask(0),
    "open": resource.getrlimit(resource.RLIMIT_NOFILE),
    "input": sys.stdin.read(),
    "streams": [[each.encoding, each.line_buffering, each.isatty()] for each in (sys.stdin, sys.stdout, sys.stderr)],
}, indent=1))
"""


def both(words: list[str], stdin: str = "") -> list[subprocess.CompletedProcess[str]]:
    """Run Python with some words, started and forked."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "PYTHONPATH": "/srv/more"}
    command = [sys.executable, *words]
    started = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False)
    return [started, forks.run(command, environment, stdin)]


def test_it_has_what_a_process_has(worker_engine: OwnEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the interpreter is there before, in another folder and another namespace
    both(["-c", "pass"])
    monkeypatch.chdir(tmp_path)
    with worker_engine.entered():
        started, forked = both(["-c", TELL, "one", "-m", "two words"], "what it is given\nin lines")
    assert (started.returncode, started.stderr) == (0, "")
    assert forked.stdout == started.stdout
    assert (forked.returncode, forked.stderr) == (0, "")


@pytest.mark.parametrize(
    "program",
    [
        "print('all')",
        "import sys; print('it'); sys.exit(7)",
        "import sys; print('it'); sys.exit()",
        "import sys; print('it'); sys.exit('says why')",
        "print('it'); raise ValueError('says why')",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import atexit; atexit.register(print, 'last'); print('first')",
        "import threading; threading.Timer(0.2, print, ['later']).start(); print('now')",
    ],
)
def test_it_ends_as_a_process_ends(program: str) -> None:
    started, forked = both(["-c", program])
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


@pytest.mark.parametrize(
    "words", [["-m", "api", "--help"], ["-m", "appliance.agent", "no-word"], [str(forks.PENSTOCK)]]
)
def test_our_programs_run_as_their_commands_do(words: list[str]) -> None:
    started, forked = both(words)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_what_is_random_differs() -> None:
    program = (
        "import random, ssl, tempfile, uuid; print(random.random(), ssl.RAND_bytes(8), uuid.uuid4(), tempfile.mktemp())"
    )
    told = [forks.run(["-c", program], {}).stdout.split() for _ in range(2)]
    assert not set(told[0]) & set(told[1])


def test_a_process_may_be_waited_for_and_ended() -> None:
    process = forks.start(["-c", "import time; time.sleep(600)"], {})
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.terminate()
    assert process.wait(60) == process.poll() == process.returncode == -signal.SIGTERM
    process.kill()
    assert not Path(f"/proc/{process.pid}").exists()
