"""What sessions on places of Slurm do when a daemon dies, a node goes, or an administrator of Slurm interferes."""

from __future__ import annotations

import pytest

from tests.lab.site import LabSite
from tests.slurm_lab.steps import (
    KEYS,
    TOLD,
    checks,
    container,
    elsewhere,
    lease,
    leases,
    master,
    on,
    runs,
    session,
    withheld,
)

GIVEN_UP_S = 180
"""So long Slurm may take to see that a node does not answer any more, and to give up what runs there."""


@pytest.mark.parametrize("how", ["restart", "kill --signal=KILL"])
def test_sessions_go_on_while_the_daemon_of_their_node_starts_again(journey: LabSite, how: str) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    held = container(journey, before["node"])
    on(journey, before["node"], f"systemctl {how} slurmd")
    journey.submit("late")
    assert runs(journey, "late")["node"] == before["node"]
    assert held in container(journey, before["node"]).split()
    assert lease(runs(journey, "demo")) == lease(before)
    assert leases(journey) == sorted(lease(session(journey, name)) for name in ("demo", "late"))


def test_a_node_whose_daemon_stays_away_loses_its_training_to_another(journey: LabSite) -> None:
    before = elsewhere(journey, "demo", than="worker1")
    on(journey, "worker2", "systemctl stop slurmd")
    journey.until(lambda: session(journey, "demo")["node"] == "worker1", "Slurm gives the node up", GIVEN_UP_S)
    after = runs(journey, "demo", attempt=1)
    assert after["node"] == "worker1"
    journey.until(lambda: not container(journey, "worker2"), "nothing of it is left there")
    assert leases(journey) == [lease(after)]
    assert "down" in withheld(journey, "worker2")
    on(journey, "worker2", "systemctl start slurmd")
    journey.until(lambda: withheld(journey, "worker2") == "", "the node lends again", GIVEN_UP_S)
    assert lease(before) not in leases(journey)


def test_without_the_accounting_sessions_start_and_end_and_it_is_told_later(journey: LabSite) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    master(journey, "systemctl stop slurmdbd mariadb")
    journey.until(lambda: checks(journey)["slurmdbd", ""] == "fail", "the doctor tells")
    journey.submit("late")
    late = runs(journey, "late")
    journey.penstock("delete", "late")
    journey.until(lambda: leases(journey) == [lease(before)], "the place of the one that was deleted is given back")
    master(journey, "systemctl start mariadb slurmdbd")
    journey.until(lambda: lease(late) in master(journey, TOLD), "the accounting has what it missed")
    journey.until(lambda: checks(journey)["slurmdbd", ""] == "ok", "the doctor sees it")


def test_a_node_that_an_administrator_drains_keeps_its_session_and_takes_no_other(journey: LabSite) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    other = next(name for name in ("worker1", "worker2") if name != before["node"])
    master(journey, f"scontrol update NodeName={before['node']} State=DRAIN Reason='fans are loud'")
    journey.until(lambda: "fans are loud" in withheld(journey, before["node"]), "the node says why it lends nothing")
    journey.submit("late")
    assert runs(journey, "late")["node"] == other
    master(journey, f"scontrol update NodeName={other} State=DRAIN Reason='fans are loud'")
    journey.until(lambda: "fans are loud" in withheld(journey, other), "the other says so, too")
    journey.submit("last")
    journey.until(lambda: "fans are loud" in session(journey, "last")["reason"], "it waits, and the reason is Slurm's")
    assert lease(runs(journey, "demo")) == lease(before)
    for name in ("worker1", "worker2"):
        master(journey, f"scontrol update NodeName={name} State=RESUME")
    runs(journey, "last")


@pytest.mark.parametrize("how", ["restart", "kill --signal=KILL"])
def test_sessions_and_leases_are_the_same_after_the_api_starts_again(journey: LabSite, how: str) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    held = container(journey, before["node"])
    journey.submit("late")
    master(journey, f"systemctl {how} penstock-api")
    late = runs(journey, "late")
    assert lease(runs(journey, "demo")) == lease(before)
    assert held in container(journey, before["node"]).split()
    assert leases(journey) == sorted(map(lease, (before, late)))


@pytest.mark.parametrize("how", ["restart", "kill --signal=KILL"])
def test_sessions_and_leases_are_the_same_after_the_agent_starts_again(journey: LabSite, how: str) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    held = container(journey, before["node"])
    on(journey, before["node"], f"systemctl {how} penstock-agent")
    journey.submit("late")
    late = runs(journey, "late")
    assert lease(runs(journey, "demo")) == lease(before)
    assert held in container(journey, before["node"]).split()
    assert leases(journey) == sorted(map(lease, (before, late)))


def test_a_node_with_another_key_of_munge_lends_nothing_and_its_training_runs_on_another(journey: LabSite) -> None:
    elsewhere(journey, "demo", than="worker1")
    on(journey, "worker2", KEYS.format(source="/dev/urandom"))
    journey.until(lambda: session(journey, "demo")["node"] == "worker1", "Slurm gives the node up", GIVEN_UP_S)
    assert lease(runs(journey, "demo", attempt=1)) in leases(journey)
    journey.until(lambda: not container(journey, "worker2"), "nothing of it is left there")
    assert checks(journey)["slurmd", "worker2"] == "fail"
    on(journey, "worker2", KEYS.format(source="/root/munge.key"))
    journey.until(lambda: withheld(journey, "worker2") == "", "the node lends again", GIVEN_UP_S)
