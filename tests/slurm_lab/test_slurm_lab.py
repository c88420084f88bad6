"""Sessions on a site whose engine is Slurm, from one disk in a closed network, and what they survive."""

from __future__ import annotations

import json

from tests.lab.site import LabSite
from tests.slurm_lab.conftest import CONTROLLERS
from tests.slurm_lab.steps import TOLD, container, lease, leases, master, runs, session

TAKEN_OVER_S = 120
WRITTEN = (
    "began=$(date --date=$(squeue --noheader --user=penstock --format=%S) +%s);"
    " [ $(stat --format=%Y /srv/controllers/slurm/job_state) -gt $began ] && echo written"
)
"""Says when the controller has written to its folder that the only job of sessions runs, seconds after it began."""


def test_the_doctor_sees_all_of_slurm(journey: LabSite) -> None:
    """Before the faults: a check that has failed more than once has to be well for longer."""

    def told() -> set[tuple[str, str]]:
        listed = json.loads(journey.try_penstock("doctor", "--all", "-o", "json").stdout)
        return {(str(check["check"]), str(check["state"])) for check in listed}

    wanted = {(check, "ok") for check in ("munge", "slurmctld", "slurmdbd", "slurmd")}
    journey.until(lambda: {seen for seen in told() if seen[0] in dict(wanted)} == wanted, "all are well")


def test_sessions_hold_places_that_slurm_lends(journey: LabSite) -> None:
    """Row L7 as on every engine: two run, the third waits and says why; delete one and the third runs."""
    journey.project("1")
    assert "1" in journey.three_for_two()
    running = [session(journey, name) for name in ("first", "second")]
    assert leases(journey) == sorted(map(lease, running))
    journey.third_runs()
    journey.until(lambda: len(leases(journey)) == 2, "the job of the first is over")


def test_a_container_is_in_the_cgroup_of_its_job(journey: LabSite) -> None:
    journey.submit("demo")
    node = runs(journey, "demo")["node"]
    state = journey.in_node(node, "docker", "inspect", "--format", "{{.State.Pid}}", container(journey, node))
    assert "/job_" in journey.in_node(node, "cat", f"/proc/{state.stdout.strip()}/cgroup").stdout


def test_a_training_whose_job_is_cancelled_is_withdrawn_and_runs_again(journey: LabSite) -> None:
    journey.submit("demo")
    first = runs(journey, "demo")
    master(journey, "scancel --user=penstock")
    second = runs(journey, "demo", attempt=1)
    assert leases(journey) == [lease(second)]
    told = [line.split("|") for line in master(journey, TOLD).splitlines() if "|" in line]
    assert [state[:9] for comment, state, *_ in told if comment.startswith(lease(first))] == ["CANCELLED"]
    # slurmdbd hears of a job's comment when it ends
    [[node, resources]] = [rest for _, state, *rest in told if state == "RUNNING"]
    assert node == second["node"]
    assert "gres/fgpu=500" in resources


def test_an_interactive_session_whose_job_is_cancelled_says_so(journey: LabSite) -> None:
    sleeps = ("--interactive", "--command", "sleep", "--args", "infinity")
    journey.penstock("submit", "desk", "-i", "python:3.11", "-g", "0.5", *sleeps)
    runs(journey, "desk")
    identity = session(journey, "desk")["id"]
    master(journey, "scancel --user=penstock")
    journey.until(lambda: session(journey, identity)["state"] == "FAILED", "its end is told")
    assert session(journey, identity)["reason"] == "Slurm took its place back: CANCELLED"


def test_a_controller_that_was_killed_comes_back_and_nobody_notices(journey: LabSite) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    held = container(journey, before["node"])
    journey.until(lambda: "written" in master(journey, WRITTEN), "the controller has written the job down")
    master(journey, "systemctl kill --signal=KILL slurmctld")
    journey.submit("late")
    runs(journey, "late")
    after = runs(journey, "demo")
    assert held in container(journey, after["node"])
    assert lease(after) == lease(before)
    assert lease(after) in leases(journey)


def test_a_controller_that_was_killed_as_it_lent_loses_and_doubles_no_session(journey: LabSite) -> None:
    journey.submit("demo")
    runs(journey, "demo")
    master(journey, "systemctl kill --signal=KILL slurmctld")
    journey.submit("late")
    names = ("demo", "late")
    journey.until(
        lambda: leases(journey) == sorted(lease(runs(journey, name)) for name in names), "each runs on one lease"
    )


def test_without_a_controller_nothing_new_starts_and_the_reason_says_so(journey: LabSite) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    for name in reversed(CONTROLLERS):
        journey.in_node(name, "systemctl", "stop", "slurmctld")
    journey.submit("late")
    journey.until(
        lambda: "Slurm's controller does not answer" in session(journey, "late")["reason"], "the reason is told"
    )
    assert session(journey, "late")["state"] != "RUNNING"
    assert session(journey, "demo")["state"] == "RUNNING"
    for name in CONTROLLERS:
        journey.in_node(name, "systemctl", "start", "slurmctld")
    runs(journey, "late")
    assert lease(runs(journey, "demo")) == lease(before)


def test_the_backup_controller_takes_over_and_sessions_start_by_it(journey: LabSite) -> None:
    journey.submit("demo")
    before = runs(journey, "demo")
    master(journey, "systemctl stop slurmctld")
    journey.until(lambda: leases(journey) == [lease(before)], "the backup controller has the job", TAKEN_OVER_S)
    journey.submit("late")
    runs(journey, "late")
    assert lease(runs(journey, "demo")) == lease(before)


def test_people_with_sbatch_work_beside_sessions_and_accounting_tells_both(journey: LabSite) -> None:
    for node in ("master1", "worker1", "worker2"):
        journey.in_node(node, "useradd", "--uid", "5001", "ada")
    journey.submit("demo")
    ours = runs(journey, "demo")
    said = master(journey, "cd / && runuser --user ada -- sbatch --cpus-per-task=2 --output=/dev/null --wrap='sleep 5'")
    assert "Submitted" in said, said
    number = said.split()[-1]
    told = (
        f"sacct --allusers --allocations --noheader --parsable2 --jobs={number} --format=User,Partition,State,NodeList"
    )
    journey.until(lambda: "ada|people|COMPLETED|worker1" in master(journey, told), "the job of people has ended")
    assert lease(ours) in leases(journey)
