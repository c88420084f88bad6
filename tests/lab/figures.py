"""Figures of a running lab: how long a session takes to run, and how long `penstock list` takes."""

from __future__ import annotations

import statistics
import time
from datetime import datetime

from tests.lab.journey import Journey

ROUNDS = 10


def submit_seconds(journey: Journey, rounds: int = ROUNDS) -> float:
    """Median of seconds from the API's receipt of a session to its container running, one session at a time."""
    taken = []
    for number in range(rounds):
        name = f"bench-{number}"
        journey.submit(name)
        journey.until_states({name: "RUNNING"}, f"{name} runs")
        session = journey.json("get", name)
        created, started = (datetime.fromisoformat(session[key]) for key in ("created_at", "started_at"))
        taken.append((started - created).total_seconds())
        journey.penstock("delete", name)
        journey.until_states({}, f"{name} has ended")
    return statistics.median(taken)


def list_seconds(journey: Journey, rounds: int = ROUNDS) -> float:
    """Median of seconds that `penstock list` takes as a command, start of Python included."""
    taken = []
    for _ in range(rounds):
        begin = time.monotonic()
        journey.penstock("list")
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)
