"""What it takes to rebuild reservoir node and master from bundle and backup alone: one JSON line.

`python -m tests.bench.recovery` starts a site of one node in the lab, makes a project, takes a backup out of it,
removes the site, starts the node as it was before anything was installed, and rebuilds it. It exits with 1 where that
takes longer than its aim, in seconds of a quiet machine with two cores, or where what people had is not there again:

- `rebuild_s`: from the first command on the bare node to the API that answers with what was there.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from appliance.site.backup import sealing
from tests.lab.journey import PROJECT, ROOT, slowness
from tests.lab.site import LabSite, docker
from tests.lab.sites import write

AIMS = {"rebuild_s": 300}
BACKUPS, KEY = "/mnt/backup", "/root/backup.key"
REBUILD = ("penstock", "backup", "rebuild", "--from", BACKUPS, "--identity", KEY, "--bundle", "/media/penstock")


def one_node(recipient: str) -> dict[str, Any]:
    """Return a site that is what a backup brings back, and nothing else."""
    node = {"name": "node1", "address": "10.71.31.10", "roles": ["reservoir", "master"]}
    return {"name": "recovery", "nodes": [node], "backup": {"recipient": recipient}}


def newest_bundle() -> Path:
    """Return the newest bundle that was built."""
    built = (path for path in (ROOT / "build" / "bundle").glob("penstock-*") if (path / "bundle.json.sig").exists())
    return max(built, key=lambda path: path.stat().st_mtime)


def run(site: LabSite, *words: str) -> str:
    """Run a command on the node and return what it prints."""
    done = site.in_node("node1", *words)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def before(site: LabSite, backups: Path, key: Path) -> tuple[str, str]:
    """Let people work at the site, and take a backup and its signer out of it.

    Returns the site's authority and the password of a person.
    """
    site.up()
    site.login()
    site.project()
    run(site, "penstock", "backup", "now")
    with key.open("a") as file:
        file.write(run(site, "penstock", "backup", "signer"))
    docker("cp", f"{site.containers['node1']}:/var/lib/penstock/backup", str(backups))
    return Path(site.lab["ca"]).read_text(), site.own_password.read_text()


def rebuild(site: LabSite, backups: Path, key: Path) -> dict[str, Any]:
    """Rebuild the node from nothing; returns how many seconds that took, by step."""
    site.bare()
    docker("cp", str(backups), f"{site.containers['node1']}:{BACKUPS}")
    docker("cp", str(key), f"{site.containers['node1']}:{KEY}")
    begin = time.monotonic()
    site.install()
    installed = time.monotonic() - begin
    done = json.loads(run(site, *REBUILD, "-o", "json"))
    return {
        "rebuild_s": round(time.monotonic() - begin, 1),
        "install_s": round(installed, 1),
        **{f"{step}_s": seconds for step, seconds in done["seconds"].items()},
        "phases": done["deployment"]["phases"],
    }


def lost(site: LabSite, authority: str, password: str) -> list[str]:
    """Return what is not as it was: who was there logs in by the same authority, with the same password."""
    ca = site.site.with_name("ca.crt")
    ca.write_text(authority)
    words = ("login", site.lab["api"], "--user", "admin", "--ca", ca, "--password-stdin")
    site.penstock(*words, stdin=password)
    names = [project["name"] for project in site.json("project", "list")]
    return [] if PROJECT in names else [f"the project {PROJECT} is lost, there are {names}"]


def main() -> None:
    """Measure, print one line, and judge."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as work:
        folder = Path(work)
        key = folder / "backup.key"
        path = write(one_node(sealing.new_identity(key)), folder / "site.yml")
        site = LabSite(path, bundles=ROOT / "build" / "bundle", config_home=folder / "config")
        site.bundle = newest_bundle()
        try:
            kept = before(site, folder / "backups", key)
            figures = rebuild(site, folder / "backups", key)
            missed = lost(site, *kept)
        finally:
            site.down()
    print(json.dumps({"bench": "recovery", "load": round(slowness(), 1), **figures}))
    missed += [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
