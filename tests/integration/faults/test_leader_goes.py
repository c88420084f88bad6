"""The leader among several APIs dies, or stands still with living connections: another one leads soon, and once."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests import forks
from tests.api.steps import OF_LEADERS
from tests.forks import Fork
from tests.integration.agent.conftest import free_port
from tests.integration.faults.site import FaultySite

SOON_S = 25
"""So soon another one leads: after the time that the database lets a leader be silent, and some for a busy machine."""


def leader(site: FaultySite) -> int:
    """Return the database's process for the connection that holds the leader's lock; 0 where none does."""
    with psycopg.connect(site.url.replace("postgresql+psycopg", "postgresql")) as connection:
        row = connection.execute(f"SELECT pid {OF_LEADERS} AND granted").fetchone()
    return row[0] if row else 0


@contextmanager
def leading_beside(site: FaultySite) -> Iterator[Fork]:
    """Start another API, which leads, and that of the site again, to which agents and users go."""
    site.kill()
    site.until(lambda: not leader(site))
    environment = site.environment | {"PENSTOCK_API_PORT": str(free_port())}
    with (site.folder / "leader.log").open("ab") as log:
        process = forks.start([sys.executable, "-m", "api", "serve"], env=environment, stdout=log, stderr=log)
    try:
        site.until(lambda: leader(site))
        site.start()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_another_one_leads_and_nothing_is_started_twice_or_lost(site: FaultySite, how: signal.Signals) -> None:
    site.fleet.fleet.behaviour.start_s = 4.0
    with leading_beside(site) as process:
        site.submit("runs")
        site.reaches("runs", "RUNNING")
        site.submit("begun", gpu_milli=3000)
        before = leader(site)
        site.until(lambda: site.state_in_database("begun") in ("SCHEDULED", "PREPARING"))
        process.send_signal(how)
        began = time.monotonic()
        site.submit("late")
        site.until(lambda: leader(site) not in (0, before), SOON_S)
        print(f"{how.name}: another one leads after {time.monotonic() - began:.1f} s")
        for name in ("begun", "late"):
            assert site.reaches(name, "RUNNING")["attempt"] == 0
        if how is signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            site.submit("last")
            assert site.reaches("last", "RUNNING")["attempt"] == 0
            assert leader(site) != before
        assert site.session("runs")["attempt"] == 0
        site.check()
