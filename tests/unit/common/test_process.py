"""Programs that are started."""

from __future__ import annotations

from common import process


def test_output_that_is_no_text_is_read_all_the_same() -> None:
    """Such as reasons of Slurm, which are what somebody typed."""
    assert process.run(["printf", r"fans\377loud"]) == "fans\ufffdloud"
