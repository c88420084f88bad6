"""Programs that are started."""

from __future__ import annotations

import subprocess
import time

import pytest

from common import process
from common.errors import ProcessError


def test_output_that_is_no_text_is_read_all_the_same() -> None:
    """Such as reasons of Slurm, which are what somebody typed."""
    assert process.run(["printf", r"fans\377loud"]) == "fans\ufffdloud"


def test_a_program_that_takes_too_long_has_told_why() -> None:
    with pytest.raises(ProcessError, match=r"sh has not ended after 5 s:\n  full., I try again"):
        process.run(["sh", "-c", r"printf 'full\377, I try again\n' >&2; exec sleep 60"], timeout_s=5)
    with pytest.raises(ProcessError, match=r"sleep has not ended after 0\.1 s\.\Z"):
        process.run(["sleep", "60"], timeout_s=0.1)


@pytest.mark.parametrize("most_bytes", [0, 4096])
def test_a_program_that_a_kernel_does_not_let_go_is_left(monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """As one that waits for the disk of a server that is gone, and does not even end by KILL."""
    left: list[subprocess.Popen[str]] = []

    def in_vain(one: subprocess.Popen[str]) -> None:
        left.append(one)

    monkeypatch.setattr(process, "ENDS_S", 0.2)
    monkeypatch.setattr(subprocess.Popen, "kill", in_vain)
    begun = time.monotonic()
    with pytest.raises(ProcessError, match=r"has not ended after 0\.1 s"):
        process.run(["sleep", "20"], timeout_s=0.1, most_bytes=most_bytes)
    assert time.monotonic() - begun < 10
    for one in left:
        one.terminate()
        one.wait()


def test_a_program_that_says_more_than_it_may_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(ProcessError):
        process.run(["yes"], most_bytes=4096, timeout_s=60)
    assert time.monotonic() - begun < 30
    assert process.run(["cat"], stdin="x" * 4000, most_bytes=4096) == "x" * 4000
    with pytest.raises(ProcessError, match="seen"):
        process.run(["sh", "-c", "echo seen; exit 3"], most_bytes=4096)
