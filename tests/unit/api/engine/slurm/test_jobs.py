"""Words for Slurm, and what is read of its listings."""

from __future__ import annotations

from uuid import UUID

import pytest

from api.engine.launcher import LeasedNode
from api.engine.slurm import jobs
from common.lease_protocol import HOLDER, Lease

SESSION = UUID("9b2f9c9e-5a45-4d0c-9a53-0d0a1cf7d1a4")
LEASE = Lease(SESSION, 2)
OWNER, OTHER = (UUID(int=number) for number in (1, 2))
HELD = f"penstock:{SESSION}:2"
COMMENT = f"{HELD}:{OWNER}"


def read(listing: str) -> list[jobs.Job]:
    return jobs.read(listing, OWNER)


def components(*places: LeasedNode) -> list[list[str]]:
    """Return the words of each component that differ from one to the other."""
    parts: list[list[str]] = [[]]
    for word in jobs.submission(LEASE, places, "penstock", OWNER)[2:]:
        if word == ":":
            parts.append([])
        elif word.startswith(("--nodelist", "--nodes", "--ntasks=", "--cpus", "--mem", "--gres")):
            parts[-1].append(word)
    return parts


def test_nodes_of_which_as_much_is_taken_are_one_component() -> None:
    assert components(LeasedNode("b", 500, 2, 64), LeasedNode("a", 500, 2, 64)) == [
        ["--nodelist=a,b", "--nodes=2", "--ntasks=2", "--cpus-per-task=2", "--mem=64M", "--gres=fgpu:500"]
    ]


def test_nodes_of_which_more_is_taken_are_another_component() -> None:
    nodes = [
        part[0]
        for part in components(LeasedNode("a", 500, 1, 64), LeasedNode("b", 1000, 1, 64), LeasedNode("c", 500, 1, 64))
    ]
    assert nodes == ["--nodelist=a,c", "--nodelist=b"]


def test_each_component_is_found_by_its_lease_and_goes_to_the_partition() -> None:
    words = jobs.submission(LEASE, [LeasedNode("a", 500, 1, 64), LeasedNode("b", 1000, 1, 64)], "gpus", OWNER)
    assert words.count(f"--comment={COMMENT}") == words.count("--partition=gpus") == 2


def test_what_takes_no_gpu_asks_for_none_and_never_for_all_memory() -> None:
    [words] = components(LeasedNode("a", 0, 0, 0))
    assert words == ["--nodelist=a", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=1M"]


def test_components_of_a_job_are_one_lease() -> None:
    found = jobs.by_lease(read(f"3+0|RUNNING|None|{COMMENT}\n3+1|PENDING|Resources|{COMMENT}\n"))
    assert list(found) == [LEASE]
    assert not jobs.are_lent(found[LEASE])
    assert (jobs.why_over(found[LEASE]), jobs.why_waiting(found[LEASE])) == ("", "Resources")


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("CANCELLED", "None", "CANCELLED"),
        ("TIMEOUT", "TimeLimit", "TIMEOUT (TimeLimit)"),
        ("NODE_FAIL", "NodeDown", "NODE_FAIL (NodeDown)"),
        ("COMPLETING", "None", "COMPLETING"),
        ("SUSPENDED", "None", "SUSPENDED"),
        ("SIGNALING", "None", ""),
        ("RESIZING", "None", ""),
        ("STOPPED", "None", ""),
        ("SOMETHING_NEW", "None", ""),
        ("PENDING", "Resources", ""),
        ("CONFIGURING", "None", ""),
        ("RUNNING", "None", ""),
    ],
)
def test_a_lease_ends_with_the_state_of_its_job(state: str, reason: str, told: str) -> None:
    found = read(f"7|{state}|{reason}|{COMMENT}")
    assert jobs.why_over(found) == told
    assert jobs.are_lent(found) is (state in ("RUNNING", "SIGNALING", "RESIZING", "STOPPED"))


def test_a_lease_that_one_component_has_lost_is_over() -> None:
    found = read(f"3+0|RUNNING|None|{COMMENT}\n3+1|NODE_FAIL|NodeDown|{COMMENT}")
    assert jobs.why_over(found) == "NODE_FAIL (NodeDown)"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "7|RUNNING|None|",
        "7|RUNNING|None|(null)",
        "7|RUNNING|None|penstock",
        f"7|RUNNING|None|penstock:x:0:{OWNER}",
        f"7|RUNNING|None|penstock:{SESSION}:-1:{OWNER}",
        f"7|RUNNING|None|penstock:{SESSION}::{OWNER}",
        f"x|RUNNING|None|{COMMENT}",
        f"7|RUNNING|None|{HELD}",
        f"7|RUNNING|None|{HELD}:{OTHER}",
        f"7|RUNNING|None|{HELD}:",
    ],
)
def test_other_jobs_of_the_account_are_left_alone_and_those_of_another_installation(line: str) -> None:
    assert read(line) == []


def test_nothing_listed_is_nothing_lent() -> None:
    assert not jobs.are_lent([])
    assert jobs.why_waiting([]) == "its job is not to be found"


def test_a_suspended_job_has_lost_its_places_and_is_there_all_the_same() -> None:
    found = read(f"7|SUSPENDED|None|{COMMENT}\n8|TIMEOUT|TimeLimit|{COMMENT}")
    assert [job.is_over for job in found] == [False, True]
    assert [jobs.why_over([job]) for job in found] == ["SUSPENDED", "TIMEOUT (TimeLimit)"]


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ({3: "RUNNING", 7: "RUNNING"}, 3),
        ({3: "PENDING", 7: "RUNNING"}, 7),
        ({3: "CANCELLED", 7: "RUNNING"}, 7),
        ({3: "PENDING", 7: "PENDING"}, 3),
        ({3: "SUSPENDED", 7: "PENDING"}, 7),
        ({3: "CANCELLED", 7: "TIMEOUT"}, 3),
    ],
)
def test_one_job_of_a_lease_is_kept(states: dict[int, str], kept: int) -> None:
    listing = "".join(
        f"{number}+{part}|{state}|None|{COMMENT}\n" for number, state in states.items() for part in (0, 1)
    )
    of_lease = jobs.by_lease(read(listing))[LEASE]
    assert [job.number for job in jobs.kept(of_lease)] == [kept, kept]


def test_a_job_of_which_one_component_waits_is_not_lent_before_another() -> None:
    of_lease = read(f"3+0|RUNNING|None|{COMMENT}\n3+1|PENDING|None|{COMMENT}\n7|RUNNING|None|{COMMENT}")
    assert [job.number for job in jobs.kept(of_lease)] == [7]


HOLD = f"/usr/lib/penstock/hold-lease {HELD}"


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([LeasedNode("a", 500, 1, 64)], f"exec {HOLD}"),
        ([LeasedNode("a", 500, 1, 64), LeasedNode("b", 500, 1, 64)], f"exec /usr/bin/srun --mpi=none {HOLD}"),
        (
            [LeasedNode("a", 500, 1, 64), LeasedNode("b", 900, 1, 64)],
            f"exec /usr/bin/srun --mpi=none --het-group=0-1 {HOLD}",
        ),
    ],
)
def test_on_each_node_of_a_job_its_lease_is_held(places: list[LeasedNode], told: str) -> None:
    assert jobs.script(LEASE, places, HOLDER) == f"#!/bin/sh\n{told}\n"
