"""What comes over the socket of sandboxes, from whoever speaks there, and what an agent before has left."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.agent.fd_store import FdStore
from appliance.agent.sandbox import seccomp_listener
from appliance.agent.sandbox.audited_filter import AuditedFilter
from appliance.agent.sandbox.confinement import Confinement
from appliance.agent.sandbox.seccomp_listener import SeccompListener
from common.sandbox import Sandbox, SandboxRule
from tests import seccomp

WAIT_S = 60


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a listener, and waits for nobody for long."""
    monkeypatch.setattr(seccomp_listener, "_HELLO_S", 0.2)
    path = tmp_path / "agent.sock"
    listener = SeccompListener(path)
    listener.start()
    yield path
    listener.close()


@pytest.mark.parametrize(
    ("word", "ends"),
    [
        (b'{"fds": [', True),
        (b'{"fds": [', False),
        ('{"metadata": "ü'.encode()[:-1], True),
        (b"[1]", True),
        (b'{"fds": ["seccompFd"]}', True),
        (b'{"fds": ["seccompFd"], "metadata": "{}"}', True),
    ],
    ids=["cut", "silent", "cut in a letter", "no object", "no sandbox", "another sandbox"],
)
def test_of_what_is_not_understood_no_descriptor_stays_open(listening: Path, word: bytes, ends: bool) -> None:
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as runtime, os.fdopen(reading, "rb") as pipe:
        runtime.connect(str(listening))
        socket.send_fds(runtime, [word], [writing])
        os.close(writing)
        if ends:
            runtime.shutdown(socket.SHUT_WR)
        # the pipe ends when the last copy of its other end is closed
        assert select.select([pipe], [], [], WAIT_S)[0], "a copy of the descriptor is left"
        assert pipe.read() == b""


def test_nobody_but_the_agents_user_may_speak_there(listening: Path) -> None:
    assert listening.stat().st_mode & 0o777 == 0o600


CONFINED = Confinement(
    id="c1",
    session_id="s1",
    listener="/nowhere",
    sandbox=Sandbox(name="strict", rules=[SandboxRule(calls=["getuid"], errno="EACCES")]),
)
ASKS = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "architectures": ["SCMP_ARCH_X86_64"],
    "syscalls": [{"names": ["getuid"], "action": "SCMP_ACT_NOTIFY"}],
}
PROGRAM = """
import ctypes, os, socket, sys
code = bytes.fromhex(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
libc.prctl(38, 1, 0, 0, 0)
program = Program(len(code) // 8, code)
listener = libc.syscall(317, 1, 1 << 3, ctypes.byref(program))
with socket.socket(fileno=int(sys.argv[1])) as channel:
    socket.send_fds(channel, [b"x"], [listener])
os.close(listener)
for _ in range(2):
    print(ctypes.get_errno() if libc.syscall(102) < 0 else 0, flush=True)
"""


@pytest.fixture
def asking() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A program that makes a denied call twice, and the descriptor of its filter."""
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-c", PROGRAM, str(theirs.fileno()), seccomp.made(ASKS).code.hex()]
    with ours, theirs, subprocess.Popen(words, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE) as program:
        _, [descriptor], _, _ = socket.recv_fds(ours, 1, 1)
        yield descriptor, program
        program.kill()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program has numbers of x86-64")
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "not taken"])
def test_a_call_that_an_agent_has_not_answered_does_not_wait_for_ever(
    asking: tuple[int, subprocess.Popen[bytes]], tmp_path: Path, taken: bool
) -> None:
    """Who took it was killed before the answer, and nobody is told of it again."""
    descriptor, program = asking
    before = AuditedFilter.new(descriptor, CONFINED)
    if taken:
        assert before.receive() is not None
    listener = SeccompListener(tmp_path / "agent.sock", FdStore(kept={before.name: before.descriptors}))
    listener.start()
    try:
        printed, _ = program.communicate(timeout=WAIT_S)
    finally:
        listener.close()
    assert printed.split() == [b"38" if taken else b"13", b"13"]
    assert sum(denied.count for denied in listener.take()) == 2 - taken


def test_what_is_no_filter_any_more_is_let_go(tmp_path: Path) -> None:
    memory = os.memfd_create("penstock-sandbox")
    listener = SeccompListener(tmp_path / "agent.sock", FdStore(kept={"sandbox-1": [memory]}))
    listener.start()
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(memory)
    finally:
        listener.close()
