"""Nodes of Slurm that take no jobs."""

from __future__ import annotations

import pytest

from api.engine.launcher import Held
from api.engine.slurm import nodes


def line(name: str, state: str, reason: str = "none", partition: str = "up") -> str:
    return f"{name:65}{'2/14/0/16':40}{'512':20}{partition:20}{state:40}{reason}\n"


def read(listing: str) -> dict[str, str]:
    return {name: node.why for name, node in nodes.read(listing).items()}


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "allocated+", "mixed-", "planned", "completing"])
def test_a_node_that_works_takes_jobs(state: str) -> None:
    assert read(line("worker1", state)) == {"worker1": ""}


@pytest.mark.parametrize("state", ["down", "drained", "draining", "maint", "reserved", "idle~", "idle$"])
def test_another_takes_none_and_says_so(state: str) -> None:
    assert read(line("worker1", state)) == {"worker1": f"Slurm: {state}"}


@pytest.mark.parametrize("state", ["idle*", "mixed*", "completing*", "down*"])
def test_one_that_does_not_answer_says_that_in_words(state: str) -> None:
    assert read(line("worker1", state)) == {"worker1": f"Slurm: {state} (Not responding)"}
    assert read(line("worker1", state, "fans")) == {"worker1": f"Slurm: {state} (fans)"}


@pytest.mark.parametrize("partition", ["down", "drain", "inactive"])
def test_no_node_of_a_partition_that_is_closed_takes_jobs(partition: str) -> None:
    assert read(line("worker1", "idle", partition=partition)) == {"worker1": f"Slurm: its partition is {partition}"}


def test_the_reason_is_told_as_it_was_given() -> None:
    listing = line("worker1", "drained", "fans | loud") + line("worker2", "idle")
    assert read(listing) == {"worker1": "Slurm: drained (fans | loud)", "worker2": ""}


def test_the_first_line_of_a_node_is_what_counts() -> None:
    """Reasons may have lines of their own."""
    assert read(line("worker1", "drained", "fans") + "and loud\n" + line("worker1", "idle")) == {
        "worker1": "Slurm: drained (fans)"
    }


def test_what_all_jobs_hold_is_told() -> None:
    assert nodes.read(line("worker1", "mixed"))["worker1"].held == Held(2000, 512)
