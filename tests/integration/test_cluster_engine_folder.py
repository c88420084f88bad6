"""The folder of Slurm's controllers on mounts of the kernel: which places a deploy takes for a storage of both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from appliance.site import inventory
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.tree import ROOT

SITE = """\
name: north
engine: slurm
slurm: {{backup_controller: c1, state_folder: {folder}}}
nodes:
  - {{name: m1, address: 10.0.0.2, roles: [reservoir, master]}}
  - {{name: c1, address: 10.0.0.3, roles: [slurm], slurm: {{cores: 4, memory_mib: 8000}}}}
"""
ROOT_REFUSED = "is on the root file system of this node"
ELSEWHERE_REFUSED = "is on no storage of the site that this node has"


def refusal(folder: Path, *, node_folder: str, storages: list[str], check: bool = False) -> str:
    """What the role says of a state folder on a machine that has a mount at /mnt; nothing where it takes it."""
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c"
        """ 'mount -t tmpfs none /mnt && mkdir /mnt/shared && exec /usr/bin/python3 "$@"' sh "$@"\n"""
    )
    python.chmod(0o755)
    site = load(parse(SITE.format(folder=node_folder), "site.yml"))
    told = inventory.build(site, version="1", state=str(folder))["all"]["vars"]["site_slurm"]
    known = {
        "ansible_python_interpreter": str(python),
        "cluster_engine_site": told,
        "cluster_engine_node": "m1",
        "cluster_engine_user": "nobody-yet",
        "cluster_engine_storages": [{"name": path, "path": path} for path in storages],
    }
    validate = {"name": "cluster_engine", "tasks_from": "validate.yml"}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": known}
    tasks = [{"name": "Validate", "ansible.builtin.import_role": validate}]
    (folder / "play.yml").write_text(yaml.safe_dump([{"name": "Validate", **play, "tasks": tasks}]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", *["--check"][: int(check)]]
    environment = {
        "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "HOME": str(folder),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    done = subprocess.run(
        [*words, str(folder / "play.yml")], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode == 0) is ("failed=0" in done.stdout), done.stdout + done.stderr
    return "" if done.returncode == 0 else " ".join(done.stdout.split())


def test_a_folder_that_is_not_there_yet_is_where_the_nearest_one_is(tmp_path: Path) -> None:
    assert refusal(tmp_path, node_folder="/mnt/shared/of/slurm/state", storages=[]) == ""


@pytest.mark.parametrize("node_folder", ["/srv/slurm/state", "/nowhere/state"])
def test_the_root_file_system_is_refused(tmp_path: Path, node_folder: str) -> None:
    assert ROOT_REFUSED in refusal(tmp_path, node_folder=node_folder, storages=[])


def test_a_mount_that_is_no_storage_of_the_site_is_refused_where_it_has_some(tmp_path: Path) -> None:
    assert ELSEWHERE_REFUSED in refusal(tmp_path, node_folder="/mnt/shared/slurm", storages=["/srv/data"])
    assert refusal(tmp_path, node_folder="/mnt/shared/slurm", storages=["/srv/data", "/mnt/shared"]) == ""


def test_a_dry_run_refuses_nothing_that_is_not_mounted_yet(tmp_path: Path) -> None:
    assert refusal(tmp_path, node_folder="/nowhere/state", storages=[], check=True) == ""
