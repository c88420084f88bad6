"""`penstock overview` and `penstock summary`: the site at a glance, and what is one's own of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import cast

from appliance.client.views import Overview, QueueEntry, Summary
from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import session, waiting

SITE: Overview = {
    "node_count": 3,
    "open_count": 2,
    "gpu_milli": 8000,
    "used_milli": 6500,
    "idle_milli": 500,
    "waiting_milli": 4000,
    "sessions": {"RUNNING": 5, "PENDING": 1, "FAILED": 2},
    "projects": [
        {
            "name": "team-a",
            "domain": None,
            "quota_milli": 4000,
            "used_milli": 6500,
            "idle_milli": 500,
            "waiting_milli": 4000,
            "waiting": 1,
        }
    ],
    "running": [session()],
    "waiting": [cast("QueueEntry", waiting(reason="no node has 4 free GPUs"))],
    "nodes": [],
}
MINE: Summary = {
    "sessions": [waiting(reason="no node has 4 free GPUs", position=3)],
    "more": True,
    "limits": [
        {"of": "sessions", "held": 1, "waiting": 1, "most": 4, "left": 2},
        {"of": "gpu_milli", "held": 500, "waiting": 4000, "most": None, "left": None},
        {"of": "memory_mib", "held": None, "waiting": None, "most": 2048, "left": 0},
    ],
    "groups": [
        {
            "name": "",
            "nodes": 2,
            "gpu_milli": 8000,
            "free_gpu_milli": 1500,
            "cpu_milli": 64000,
            "free_cpu_milli": 32500,
            "memory_mib": 4096,
            "free_memory_mib": 1024,
        }
    ],
    "projects": [{"name": "team-a", "quota_milli": 4000, "used_milli": 500, "over_quota": True}],
}


def test_the_overview_says_what_is_held_idle_and_waited_for(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/overview", SITE)
    code, out, _ = run("overview")
    assert code == 0
    assert out.startswith(
        "Nodes:          2 of 3 take new sessions\n"
        "GPUs:           6.5 of 8 in use\n"
        "Held, but idle: 0.5\n"
        "Waited for:     4\n"
        "Sessions:       5 run, 1 wait, 2 failed\n"
        "\n"
        "PROJECT  IN USE  QUOTA  IDLE  WAITED FOR\n"
        "team-a   6.5     4      0.5   4\n"
    )
    assert "no node has 4 free GPUs" in out
    assert json.loads(run("overview", "-o", "json")[1]) == SITE


def test_the_overview_of_an_empty_site_has_no_tables(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/overview", {**SITE, "projects": [], "running": [], "waiting": []})
    assert run("overview")[1].endswith("Sessions:       5 run, 1 wait, 2 failed\n")


def test_the_summary_says_what_is_left_and_where_there_is_room(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/summary", MINE)
    code, out, _ = run("summary")
    assert code == 0
    assert "place 3: no node has 4 free GPUs" in out
    assert out.endswith(
        "There are more: penstock list\n"
        "\n"
        "LIMIT     IN USE         WAITED FOR     AT MOST   LEFT\n"
        "sessions  1              1              4         2\n"
        "GPUs      0.5            4              no limit\n"
        "memory    without limit  without limit  2.0G      0.0G\n"
        "\n"
        "PROJECT  GPUs IN USE  QUOTA\n"
        "team-a   0.5          4\n"
        "\n"
        "GROUP       NODES  GPUs FREE  CPUs FREE   MEMORY FREE\n"
        "(no group)  2      1.5 of 8   32.5 of 64  1.0G of 4.0G\n"
    )
    assert json.loads(run("summary", "-o", "json")[1]) == MINE
    logged_in.on("GET", "/summary", {**MINE, "sessions": [], "more": False})
    assert run("summary")[1].startswith("Nothing of yours runs or waits.\n\nLIMIT")


def test_the_summary_tells_the_age_that_lists_tell(logged_in: FakeApi, run: Run) -> None:
    at = datetime.now(UTC)
    made, started = (at - timedelta(hours=5, minutes=1)).isoformat(), (at - timedelta(minutes=7)).isoformat()
    running = {**session(), "created_at": made, "started_at": started}
    logged_in.on("GET", "/summary", {**MINE, "sessions": [running]})
    logged_in.on("GET", "/sessions", [running])
    for words in (("summary",), ("list",)):
        head, row, *_ = run(*words)[1].splitlines()
        assert row[head.index("AGE") :].split()[0] == "5h", words
