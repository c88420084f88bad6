"""The API is killed at every transition of a session, and started again: nothing is lost, doubled or stuck."""

from __future__ import annotations

import pytest

from tests.integration.faults.site import FaultySite


def kill_in(site: FaultySite, name: str, *states: str) -> None:
    """Kill the API when the database says that a session is in one of these states; start it again."""
    site.until(lambda: site.state_in_database(name) in states)
    site.kill()
    assert site.state_in_database(name) in states, "it died in time"
    site.start()


@pytest.mark.parametrize(("pull_s", "replicas"), [(0.0, 1), (1.5, 2)])
def test_while_it_is_launched(site: FaultySite, pull_s: float, replicas: int) -> None:
    site.fleet.fleet.behaviour.pull_s, site.fleet.fleet.behaviour.start_s = pull_s, 4.0
    site.submit("launched", gpu_milli=3000, replicas=replicas)
    kill_in(site, "launched", "SCHEDULED", "PREPARING")
    session = site.reaches("launched", "RUNNING")
    assert session["attempt"] == 0
    site.check()


def test_right_after_its_submission(site: FaultySite) -> None:
    """It may be PENDING, SCHEDULED or PREPARING: whatever the moment, it comes to run, once."""
    for number in range(3):
        site.submit(f"eager-{number}", gpu_milli=500)
        site.kill()
        site.start()
    for number in range(3):
        assert site.reaches(f"eager-{number}", "RUNNING")["attempt"] == 0
    site.check()


def test_while_it_runs_and_while_it_ends_by_itself(site: FaultySite) -> None:
    site.submit("works", command=["train"])
    site.submit("stays")
    before = site.reaches("works", "RUNNING")
    stays = site.reaches("stays", "RUNNING")
    site.kill()
    site.fleet.exit(before["node"], f"session-{before['id']}-0-0", 0)
    site.start()
    site.reaches("works", "TERMINATED")
    after = site.session("stays")
    assert (after["state"], after["started_at"]) == ("RUNNING", stays["started_at"])
    site.check()


def test_while_it_is_deleted(site: FaultySite) -> None:
    site.fleet.fleet.behaviour.remove_s = 3.0
    site.submit("victim", gpu_milli=2000, replicas=2)
    site.reaches("victim", "RUNNING")
    site.delete("victim")
    kill_in(site, "victim", "TERMINATING")
    site.reaches("victim", "TERMINATED")
    site.check()


def test_while_its_share_is_changed(site: FaultySite) -> None:
    """Lowered and raised while the agent is told: in the end agent and database agree on what was asked for."""
    site.fleet.fleet.behaviour.resize_s = 0.5
    for name in ("shared", "beside"):
        site.submit(name, gpu_milli=500)
        site.reaches(name, "RUNNING")
    for milli in (250, 500, 300):
        site.call("PATCH", "/sessions/shared", {"gpu_milli": milli}, project="team-a")
        site.kill()
        site.start()
        site.until(lambda: site.session("shared")["resize_milli"] is None)
        assert site.session("shared")["gpu_milli"] == milli
        site.check()
    assert site.session("shared")["attempt"] == 0


def test_while_it_is_taken_back(site: FaultySite) -> None:
    """team-a uses all eight GPUs; team-b asks for its four, and the API dies while room is made."""
    for number in range(8):
        site.submit(f"wide-{number}")
    for number in range(8):
        site.reaches(f"wide-{number}", "RUNNING")
    site.fleet.fleet.behaviour.remove_s = 3.0
    site.submit("owner", "team-b", gpu_milli=4000)
    site.until(lambda: "TERMINATING" in {session["state"] for session in site.sessions()})
    site.kill()
    site.start()
    site.reaches("owner", "RUNNING", project="team-b")
    states = [session["state"] for session in site.sessions() if session["project"] == "team-a"]
    assert sorted(states) == ["PENDING"] * 4 + ["RUNNING"] * 4
    site.check()

    site.delete("owner", "team-b")
    site.until(lambda: {session["state"] for session in site.sessions()} == {"RUNNING"})
    assert sorted(session["attempt"] for session in site.sessions()) == [0] * 4 + [1] * 4, "they really start again"
    site.check()
