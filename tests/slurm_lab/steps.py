"""Steps of sessions whose places Slurm lends, and what Slurm says of them."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.site import LabSite

LENT = "squeue --noheader --user=penstock --states=RUNNING --format='%k'"
TOLD = "sacct --allusers --allocations --noheader --parsable2 --format=Comment%120,State,NodeList,AllocTRES"


def master(lab: LabSite, script: str) -> str:
    """Return what a command says on the master, failed or not."""
    return lab.in_node("master1", "sh", "-c", f"{script} 2>&1").stdout


def session(lab: LabSite, name: str) -> dict[str, Any]:
    found: dict[str, Any] = lab.json("get", name)
    return found


def runs(lab: LabSite, name: str, attempt: int | None = None) -> dict[str, Any]:
    """Wait until a session runs, with this attempt if one is named, and return it.

    One that Slurm did not lend its place within 10 s has tried once more: that is an attempt of its own.
    """

    def reached() -> bool:
        seen = session(lab, name)
        assert seen["state"] != "FAILED", seen["reason"]
        return seen["state"] == "RUNNING" and attempt in (None, seen["attempt"])

    lab.until(reached, f"{name} runs")
    return session(lab, name)


def container(lab: LabSite, node: str) -> str:
    """Return the only container of sessions on a node."""
    words = ("docker", "ps", "--no-trunc", "--quiet", "--filter", "label=io.penstock.id")
    return lab.in_node(node, *words).stdout.strip()


def lease(of: dict[str, Any]) -> str:
    return f"penstock:{of['id']}:{of['attempt']}"


def leases(lab: LabSite) -> list[str]:
    """Return the leases that Slurm lends now."""
    return sorted(line.rpartition(":")[0] for line in master(lab, LENT).split())


def on(lab: LabSite, node: str, script: str) -> None:
    """Run a script on a node, which has to come to its end."""
    done = lab.in_node(node, "sh", "-euc", script)
    assert done.returncode == 0, done.stdout + done.stderr


def withheld(lab: LabSite, node: str) -> str:
    """Return why a node lends nothing; empty where it does."""
    return str(lab.json("node", "get", node)["withheld"])


def checks(lab: LabSite) -> dict[tuple[str, str], str]:
    """Return how the checks of Slurm are as the leader saw them, by what they are about."""
    listed = json.loads(lab.try_penstock("doctor", "--all", "-o", "json").stdout)
    return {(check["check"], check["thing"]): check["state"] for check in listed}
