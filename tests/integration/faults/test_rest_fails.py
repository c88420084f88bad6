"""The database restarts, agents go and come back, messages come twice or late."""

from __future__ import annotations

from tests.integration.faults.site import FaultySite


def test_the_database_restarts_while_sessions_start_and_end(site: FaultySite) -> None:
    site.fleet.fleet.behaviour.start_s = 0.5
    site.submit("old")
    site.reaches("old", "RUNNING")
    for number in range(4):
        site.submit(f"new-{number}", gpu_milli=500)
    site.delete("old")
    site.restart_database()
    site.until(lambda: site.client.get("/health").status_code == 200)
    for number in range(4):
        assert site.reaches(f"new-{number}", "RUNNING")["attempt"] == 0
    site.reaches("old", "TERMINATED")
    site.check()


def test_messages_that_come_twice_and_late(site: FaultySite) -> None:
    site.fleet.fleet.behaviour.copies, site.fleet.fleet.behaviour.late = 3, True
    site.fleet.fleet.behaviour.start_s = 0.2
    for number in range(6):
        site.submit(f"noisy-{number}", gpu_milli=500)
    running = [site.reaches(f"noisy-{number}", "RUNNING") for number in range(6)]
    site.fleet.exit(running[0]["node"], f"session-{running[0]['id']}-0-0", 3)
    site.reaches("noisy-0", "FAILED")
    site.delete("noisy-1")
    site.reaches("noisy-1", "TERMINATED")
    for number in range(2, 6):
        session = site.session(f"noisy-{number}")
        assert (session["state"], session["attempt"]) == ("RUNNING", 0)
    site.check()


def test_an_agent_restarts_with_running_sessions(site: FaultySite) -> None:
    site.submit("steady", gpu_milli=2000, replicas=2, interactive=True)
    before = site.reaches("steady", "RUNNING")
    for name in ("worker1", "worker2"):
        site.fleet.restart(name)
    site.submit("next", gpu_milli=0, cpu_milli=1000)
    site.reaches("next", "RUNNING")
    after = site.session("steady")
    assert (after["state"], after["started_at"], after["attempt"]) == ("RUNNING", before["started_at"], 0)
    site.check()


def test_a_node_is_lost_with_a_training_that_starts_again_and_comes_back(site: FaultySite) -> None:
    site.submit("moves")
    node = site.reaches("moves", "RUNNING")["node"]
    site.fleet.stop(node)
    site.until(lambda: site.session("moves")["attempt"] == 1)
    session = site.reaches("moves", "RUNNING")
    assert session["node"] != node
    site.fleet.start(node)
    site.until(lambda: site.call("GET", f"/nodes/{node}")["state"] == "ready")
    site.check()


def test_a_training_that_found_no_other_place_gets_its_container_back(site: FaultySite) -> None:
    site.submit("first", gpu_milli=4000)
    site.submit("second", "team-b", gpu_milli=4000)
    before = site.reaches("first", "RUNNING")
    site.reaches("second", "RUNNING", project="team-b")
    site.fleet.stop(before["node"])
    site.reaches("first", "PENDING")
    site.fleet.start(before["node"])
    after = site.reaches("first", "RUNNING")
    assert (after["node"], after["attempt"], after["gpus"]) == (before["node"], 0, before["gpus"])
    site.check()


def test_a_node_is_lost_while_the_api_is_away(site: FaultySite) -> None:
    site.submit("talk", interactive=True)
    site.submit("work")
    talk, work = site.reaches("talk", "RUNNING"), site.reaches("work", "RUNNING")
    assert talk["node"] == work["node"], "packed"
    site.kill()
    site.fleet.stop(talk["node"])
    site.start()
    site.until(lambda: site.session("work")["attempt"] == 1)
    assert site.reaches("work", "RUNNING")["node"] != talk["node"]
    site.until(lambda: "is lost" in site.session("talk")["reason"])
    site.fleet.start(talk["node"])
    site.until(lambda: site.session("talk")["reason"] == "")
    assert site.session("talk")["state"] == "RUNNING"
    site.check()
