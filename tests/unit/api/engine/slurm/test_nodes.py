"""Nodes of Slurm that take no jobs."""

from __future__ import annotations

import pytest

from api.engine.slurm.nodes import withheld


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "allocated+", "mixed-", "planned", "completing"])
def test_a_node_that_works_takes_jobs(state: str) -> None:
    assert withheld(f"worker1|{state}|none") == {}


@pytest.mark.parametrize(
    "state", ["idle*", "down", "down*", "drained", "draining", "maint", "reserved", "idle~", "idle$"]
)
def test_another_takes_none_and_says_so(state: str) -> None:
    assert withheld(f"worker1|{state}|none") == {"worker1": f"Slurm: {state}"}


def test_the_reason_is_told_as_it_was_given() -> None:
    assert withheld("worker1|drained|fans | loud\nworker2|idle|none\n") == {"worker1": "Slurm: drained (fans | loud)"}
