"""Nodes of Slurm that take no jobs."""

from __future__ import annotations

import pytest

from api.engine.slurm.nodes import read


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "allocated+", "mixed-", "planned", "completing"])
def test_a_node_that_works_takes_jobs(state: str) -> None:
    assert read(f"worker1|{state}|none") == {"worker1": ""}


@pytest.mark.parametrize(
    "state", ["idle*", "down", "down*", "drained", "draining", "maint", "reserved", "idle~", "idle$"]
)
def test_another_takes_none_and_says_so(state: str) -> None:
    assert read(f"worker1|{state}|none") == {"worker1": f"Slurm: {state}"}


def test_the_reason_is_told_as_it_was_given() -> None:
    listing = "worker1|drained|fans | loud\nworker2|idle|none\n"
    assert read(listing) == {"worker1": "Slurm: drained (fans | loud)", "worker2": ""}


def test_the_first_line_of_a_node_is_what_counts() -> None:
    """Reasons may have lines of their own."""
    assert read("worker1|drained|fans\nworker1|idle|none\n") == {"worker1": "Slurm: drained (fans)"}
