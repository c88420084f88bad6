"""The folder where a worker's Docker keeps its things: what the site file may say, and what a node says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from appliance.agent.health import machine_look
from appliance.site import inventory
from appliance.site.model import Site
from appliance.site.site_file import load
from common.errors import InputError
from common.yaml_document import parse
from tests.role_modules import role_module
from tests.tree import ROOT

module = role_module("preflight/library/node_present.py")

SITE = """\
name: north
nodes:
  - {{name: first, address: 10.0.0.1, roles: [reservoir, master], {first}}}
  - {{name: second, address: 10.0.0.2, roles: [worker, storage], agent_port: 6001, {second}}}
storage:
  - {{kind: nfs, name: data, path: /srv/data}}
  - {{kind: external, name: lake, path: /lake}}
session_host_paths: [/mnt/scratch]
"""


def rendered(role: str, template: str, **variables: Any) -> str:
    """Return a template of a role, filled in with its defaults and `variables`."""
    known = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text()) | variables
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    environment.filters["to_json"] = json.dumps
    return environment.from_string((ROOT / f"roles/{role}/templates/{template}.j2").read_text()).render(known)


def site(second: str = "", first: str = "") -> Site:
    return load(parse(SITE.format(first=first, second=second), "site.yml"))


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        ("/etc/docker", "/etc/docker belongs to the system"),
        ("/srv/data/docker", "/srv/data/docker and /srv/data of storage data overlap"),
        ("/mnt/penstock", "/mnt/penstock and /mnt/penstock of storage data overlap"),
        ("/lake/docker", "/lake/docker and /lake of storage lake overlap"),
        ("/mnt/scratch/docker", "/mnt/scratch/docker and /mnt/scratch of session_host_paths overlap"),
        ("/opt", "/opt and /opt/penstock of Penstock overlap"),
        ("/var/lib/penstock/docker", "/var/lib/penstock/docker and /var/lib/penstock of Penstock overlap"),
    ],
)
def test_the_folder_is_docker_alone_s(root: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        site(f"docker_root: {root}")


def test_nothing_of_the_site_that_its_file_names_lies_in_it() -> None:
    alone = "name: one\nnodes: [{name: first, address: 10.0.0.1, roles: [reservoir, master, worker], agent_port: 6001,"
    text = f"{alone} docker_root: /data}}]\n"
    assert load(parse(text, "site.yml")).master.docker_root == "/data"
    for more, said in (
        ("backup: {copy_to: /data/copies}", "/data/copies of backup.copy_to"),
        ("backup: {wal_to: /data/wal}", "/data/wal of backup.wal_to"),
        ("slurm: {state_folder: /data/slurm}", "/data/slurm of slurm"),
    ):
        with pytest.raises(InputError, match=f"/data and {said} overlap"):
            load(parse(f"{text}{more}\n", "site.yml"))


def test_only_workers_have_one() -> None:
    with pytest.raises(InputError, match="first is not a worker"):
        site(first="docker_root: /data/docker")


def test_all_that_has_to_know_it_is_told() -> None:
    def hosts(*parts: str) -> Any:
        return inventory.build(site(*parts), version="1")["all"]["hosts"]

    told = hosts("docker_root: /data/docker")
    assert (told["first"]["node_docker_root"], told["second"]["node_docker_root"]) == (
        "/var/lib/docker",
        "/data/docker",
    )
    assert told["second"]["node_settings"]["docker_root"] == "/data/docker"
    assert "docker_root" not in hosts()["second"]["node_settings"]


def test_docker_is_told_and_waits_for_the_mount() -> None:
    plain = json.loads(rendered("container_engine", "etc/docker/daemon.json"))
    assert not {"data-root", "mtu"} & plain.keys()
    wanted = {"container_engine_data_root": "/data/docker", "container_engine_mtu": 8950}
    told = json.loads(rendered("container_engine", "etc/docker/daemon.json", **wanted))
    assert {name: told[name] for name in told.keys() - plain.keys()} == {"data-root": "/data/docker", "mtu": 8950}


@pytest.mark.parametrize(
    ("code", "said", "good"),
    [
        (0, "/var/lib/docker 1", False),
        (0, "/var/lib/docker 0", True),
        (0, "/data/docker 3", True),
        (127, "", True),
    ],
)
def test_what_began_since_the_preflight_is_not_left_behind(code: int, said: str, *, good: bool) -> None:
    tasks = yaml.safe_load((ROOT / "roles/container_engine/tasks/configure.yml").read_text())
    names = [task["name"] for task in tasks]
    at = names.index("Check that none is left behind")
    assert at < next(place for place, name in enumerate(names) if name.startswith("Configure Docker"))
    check = Environment(autoescape=True).compile_expression(tasks[at]["ansible.builtin.assert"]["that"])
    now = {"rc": code, "stdout": said}
    assert check(container_engine_now=now, container_engine_data_root="/data/docker") is good


def daemon(root: Path, folder: str) -> None:
    (root / "etc/docker").mkdir(parents=True, exist_ok=True)
    (root / "etc/docker/daemon.json").write_text(json.dumps({"data-root": folder}))


def looked(root: Path, wanted: str) -> dict[str, Any]:
    """What a node says, whose folder is one of a disk and leads nowhere else."""
    found = module.docker_root(root, wanted)
    assert (found.pop("kind"), found.pop("real")) == ("", "")
    return dict(found)


def test_a_node_says_what_lies_where_docker_looks_and_is_to_look(tmp_path: Path) -> None:
    assert looked(tmp_path, "/data/docker") == {"before": "/var/lib/docker", "containers": 0, "foreign": []}
    for name in ("a", "b"):
        (tmp_path / "var/lib/docker/containers" / name).mkdir(parents=True)
    (tmp_path / "data/docker/lost+found").mkdir(parents=True)
    assert module.docker_root(tmp_path, "/data/docker")["containers"] == 2
    assert module.docker_root(tmp_path, "/var/lib/docker")["containers"] == 0
    assert module.docker_root(tmp_path, "")["containers"] == 0
    # brought along, and one of them only
    (tmp_path / "data/docker/containers/a").mkdir(parents=True)
    assert looked(tmp_path, "/data/docker") == {"before": "/var/lib/docker", "containers": 1, "foreign": []}
    daemon(tmp_path, "/data/docker")
    assert looked(tmp_path, "/data/docker") == {"before": "/data/docker", "containers": 0, "foreign": []}
    assert module.docker_root(tmp_path, "/var/lib/docker")["containers"] == 0, "what lies there is known there"
    (tmp_path / "models/llama").mkdir(parents=True)
    assert module.docker_root(tmp_path, "/models")["foreign"] == ["llama"]


def test_a_folder_of_others_is_none_of_docker_s_though_something_in_it_is_called_so(tmp_path: Path) -> None:
    for name in ("containers/ship", "models/llama", "overlay2"):
        (tmp_path / "data" / name).mkdir(parents=True)
    assert looked(tmp_path, "/data")["foreign"] == ["models"]
    daemon(tmp_path, "/data")
    assert looked(tmp_path, "/data")["foreign"] == [], "Docker is there already"


def test_a_node_says_where_a_folder_leads(tmp_path: Path) -> None:
    (tmp_path / "ssd/docker").mkdir(parents=True)
    (tmp_path / "data").symlink_to(tmp_path / "ssd")
    assert module.docker_root(tmp_path, "/data/docker")["real"] == str(tmp_path / "ssd/docker")
    assert module.docker_root(tmp_path, "/ssd/docker")["real"] == ""


def test_a_node_says_on_which_file_system_docker_can_lay_no_layers(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text(
        "/dev/sda1 / ext4 rw 0 0\nsystemd-1 /data autofs rw 0 0\nlake:/x /lake nfs4 rw 0 0\n"
        "/dev/sdb1 /data xfs rw 0 0\n/dev/sdc1 /lake/local ext4 rw 0 0\ng /vol fuse.glusterfs rw 0 0\n"
    )

    def kind(folder: str) -> str:
        return str(module.docker_root(tmp_path, folder)["kind"])

    assert [kind(folder) for folder in ("/lake", "/lake/docker", "/vol/d")] == ["nfs4", "nfs4", "fuse.glusterfs"]
    assert [kind(folder) for folder in ("/lakes", "/data/docker", "/lake/local/docker", "")] == [""] * 4


def test_the_same_folders_are_docker_s_before_a_deploy_and_at_the_end_of_a_site() -> None:
    made = role_module("uninstall/library/uninstall_node.py").MADE
    assert set(made["docker"]) == module.DOCKER_MAKES


def test_the_agent_looks_at_the_disk_of_docker() -> None:
    folders = [str(folder) for folder in machine_look.folders(Path("/data/docker"))]
    assert folders == ["/", "/data/docker", "/var/lib/penstock", "/var/log", "/tmp"]
