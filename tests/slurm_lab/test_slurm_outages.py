"""What sessions on places of Slurm do when a daemon is away, or an administrator of Slurm closes a node."""

from __future__ import annotations

from tests.lab.site import LabSite
from tests.slurm_lab.steps import TOLD, checks, container, lease, leases, master, on, runs, session, withheld


def test_sessions_go_on_while_the_daemon_of_their_node_starts_again(journey: LabSite) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    held = container(journey, before["node"])
    on(journey, before["node"], "systemctl restart slurmd")
    journey.submit("late")
    assert runs(journey, "late")["node"] == before["node"]
    assert held in container(journey, before["node"]).split()
    assert lease(runs(journey, "demo")) == lease(before)
    assert leases(journey) == sorted(lease(session(journey, name)) for name in ("demo", "late"))


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
