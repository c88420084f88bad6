"""Programs that are started."""

from __future__ import annotations

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


def test_a_program_that_says_more_than_it_may_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(ProcessError):
        process.run(["yes"], most_bytes=4096, timeout_s=60)
    assert time.monotonic() - begun < 30
    assert process.run(["cat"], stdin="x" * 4000, most_bytes=4096) == "x" * 4000
    with pytest.raises(ProcessError, match="seen"):
        process.run(["sh", "-c", "echo seen; exit 3"], most_bytes=4096)
