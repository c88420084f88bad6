"""What the end of a site leaves of a node: files below a folder, and programs that are played."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import StrictUndefined
from jinja2.nativetypes import NativeEnvironment

from appliance.agent import labels
from appliance.agent.docker import egress_rules, gang_network
from appliance.site.inventory import DOCKER_ROOT
from appliance.site.slurm import STATE_FOLDER
from tests.role_modules import role_module
from tests.unit.test_roles import ROLES

uninstall_node = role_module("uninstall/library/uninstall_node.py")
node_present = role_module("preflight/library/node_present.py")

ROOT = Path(__file__).parents[2]
HOSTS = "127.0.0.1 localhost\n# BEGIN penstock\n10.0.0.1 m1 reservoir\n# END penstock\n10.1.1.1 theirs\n"
OURS = (
    "etc/apt/apt.conf.d/90penstock",
    "etc/apt/sources.list.d/penstock.sources",
    "etc/logrotate.d/00-penstock",
    "etc/sysctl.d/60-penstock.conf",
    "etc/systemd/system/penstock-agent.service",
    "etc/systemd/system/multi-user.target.wants/penstock-agent.service",
    "etc/systemd/system/penstock-log-store@.socket",
    "etc/systemd/system/docker.service.d/penstock.conf",
    "etc/postgresql/15/main/conf.d/penstock.conf",
    "usr/local/share/ca-certificates/penstock/ca.crt",
    "etc/penstock/pki/node.key",
    "opt/penstock/agent/bin/python",
)
THEIRS = (
    "etc/cron.d/report-of-penstock",
    "etc/nginx/sites-enabled/their-penstock",
    "etc/penstockings.conf",
    "opt/other/penstock.conf",
)
STATE = "LoadState=loaded\nActiveState={}\nUnitFileState={}"


class Programs:
    """Programs of a node: what they are asked, and what they answer by the beginning of that."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, str]] = {
            "systemctl list-units": (0, ""),
            "systemctl show": (0, STATE.format("inactive", "")),
            "docker version": (1, "not found"),
            "iptables": (1, ""),
            "nft": (1, ""),
            "getent": (2, ""),
            "mountpoint": (32, ""),
            "systemd-escape": (0, "mnt-data.mount"),
        }

    def run(self, *command: str) -> tuple[int, str]:
        line = " ".join(command)
        self.asked.append(line)
        known = sorted((start for start in self.answers if line.startswith(start)), key=len)
        return self.answers[known[-1]] if known else (0, "")

    def told(self, start: str) -> list[str]:
        return [line for line in self.asked if line.startswith(start)]


@pytest.fixture
def programs() -> Programs:
    return Programs()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in (*OURS, *THEIRS):
        write(tmp_path / path, path)
    write(tmp_path / "etc/hosts", HOSTS)
    return tmp_path


@pytest.fixture
def node(tree: Path, programs: Programs) -> Callable[..., Any]:
    def make(*, dry: bool = False, **more: Any) -> Any:
        defaults = {name: option.get("default") for name, option in uninstall_node.OPTIONS.items()}
        asked = defaults | {
            "root": str(tree),
            "kept": "/var/lib/penstock/kept",
            "label": labels.LABEL_ID,
            "network_label": gang_network.LABEL,
            "folders": ["/etc/penstock", "/opt/penstock/agent"],
        }
        return uninstall_node.Node(asked | more, programs.run, dry=dry)

    return make


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def files(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_symlink() or path.is_file()}


def keep(tree: Path, kept: dict[str, str], **record: str) -> None:
    """Note what was there before, with the copies of what was `kept`."""
    folder = tree / "var/lib/penstock/kept"
    for path, text in kept.items():
        write(folder / path.lstrip("/"), text)
    write(folder / "record.json", json.dumps(dict.fromkeys(kept, "kept") | record))


def test_what_bears_our_name_goes_and_what_others_wrote_stays(tree: Path, node: Any) -> None:
    node().remove()
    assert files(tree) == {*THEIRS, "etc/hosts"}
    assert (tree / "etc/hosts").read_text() == "127.0.0.1 localhost\n10.1.1.1 theirs\n"
    assert not (tree / "opt/penstock").exists()


def test_a_second_time_there_is_nothing_to_do(tree: Path, node: Any) -> None:
    first, second = node(), node()
    first.remove()
    second.remove()
    assert first.done
    assert (second.done, files(tree)) == ([], {*THEIRS, "etc/hosts"})


def test_a_purge_takes_of_dockers_folder_what_the_preflight_calls_dockers() -> None:
    """What one of them alone knows would be refused as somebody else's, or would stay."""
    assert {*uninstall_node.MADE["docker"]} == node_present.DOCKER_MAKES


def test_a_dry_run_tells_the_same_and_changes_nothing(tree: Path, programs: Programs, node: Any) -> None:
    programs.answers |= {
        "getent passwd": (0, "penstock"),
        "systemctl list-units": (0, "penstock-agent.service loaded active running Agent"),
    }
    keep(tree, {"/etc/pip.conf": "before"}, **{"/etc/hosts": "absent"})
    before = files(tree)
    options: dict[str, Any] = {"users": ["penstock"], "services": ["nginx.service"], "databases": ["penstock"]}
    dry = node(dry=True, purge=True, **options)
    dry.stop()
    dry.remove()
    assert files(tree) == before
    assert [line for line in programs.asked if line.split()[0] in ("userdel", "runuser", "rm")] == []
    assert [word for word in ("stop", "start", "disable", "restart") if programs.told(f"systemctl {word}")] == []
    real = node(purge=True, **options)
    real.stop()
    real.remove()
    assert dry.done == real.done


def test_files_of_others_come_back_as_they_were(tree: Path, node: Any) -> None:
    for path in ("etc/pip.conf", "etc/chrony/chrony.conf", "etc/localtime"):
        write(tree / path, "ours")
    write(tree / "etc/apt/sources.list.disabled-by-penstock", "theirs")
    kept = {"/etc/pip.conf": "before", "/etc/hosts": "127.0.0.1 old\n", "/etc/apt/sources.list": "theirs"}
    keep(tree, kept, **{"/etc/chrony/chrony.conf": "absent", "/etc/localtime": "ours", "/etc/nothing": "absent"})
    node().remove()
    assert (tree / "etc/pip.conf").read_text() == "before"
    assert (tree / "etc/apt/sources.list").read_text() == "theirs"
    assert not (tree / "etc/chrony/chrony.conf").exists()
    assert (tree / "etc/localtime").exists(), "nobody knows another one"
    assert "10.1.1.1 theirs" in (tree / "etc/hosts").read_text(), "what was written meanwhile stays"
    assert not (tree / "var/lib/penstock").exists(), "the next site keeps what it finds then"


def test_a_link_comes_back_as_a_link(tree: Path, node: Any) -> None:
    keep(tree, {}, **{"/etc/localtime": "kept"})
    (tree / "var/lib/penstock/kept/etc").mkdir()
    (tree / "var/lib/penstock/kept/etc/localtime").symlink_to("/usr/share/zoneinfo/Asia/Seoul")
    write(tree / "etc/localtime", "ours")
    node().remove()
    assert str((tree / "etc/localtime").readlink()) == "/usr/share/zoneinfo/Asia/Seoul"


def test_what_an_administrator_added_goes_only_by_a_purge(tree: Path, node: Any) -> None:
    write(tree / "etc/penstock/api.local.env", "theirs")
    node(stays=["*.local.env"]).remove()
    assert files(tree / "etc/penstock") == {"api.local.env"}
    node(stays=["*.local.env"], purge=True).remove()
    assert not (tree / "etc/penstock").exists()


def test_services_that_ran_before_go_on(programs: Programs, tree: Path, node: Any) -> None:
    programs.answers["systemctl show"] = (0, STATE.format("active", "enabled"))
    keep(tree, {"/etc/chrony/chrony.conf": "theirs"})
    services = ["chrony.service", "docker.service", "docker.socket", "nginx.service"]
    node(
        services=services,
        theirs=["nginx.service"],
        configured_by={"chrony.service": "/etc/chrony/chrony.conf", "docker.service": "/etc/docker/none"},
    ).remove()
    assert programs.told("systemctl stop") == ["systemctl stop docker.service docker.socket"]
    assert programs.told("systemctl disable") == ["systemctl disable docker.service docker.socket"]
    restarted = [line.split()[-1] for line in programs.told("systemctl try-restart")]
    assert {"chrony.service", "nginx.service"} <= set(restarted)
    assert "docker.service" not in restarted


def test_a_service_that_is_not_there_is_not_stopped(programs: Programs, node: Any) -> None:
    node(services=["nginx.service"]).remove()
    assert programs.told("systemctl stop") == []


def test_sessions_end_and_storage_is_taken_off(programs: Programs, tree: Path, node: Any) -> None:
    units = "penstock-agent.service loaded active running x\npenstock-log-store@w1.socket loaded active listening x"
    programs.answers |= {
        "systemctl list-units": (0, f"{units}\npenstock.slice loaded active active x"),
        "docker version": (0, ""),
        f"docker container ls --all --quiet --filter=label={labels.LABEL_ID}": (0, "c1\nc2"),
        f"docker network ls --quiet --filter=label={gang_network.LABEL}": (0, "n1"),
        "mountpoint": (0, ""),
    }
    write(tree / "etc/systemd/system/mnt-data.mount", "")
    (tree / "mnt/data").mkdir(parents=True)
    node(mounts=["/mnt/data"]).stop()
    changes = [
        line for line in programs.asked if re.search(r" (stop|rm|disable) |^umount", line) and " ls " not in line
    ]
    assert changes == [
        "systemctl stop penstock-agent.service penstock-log-store@w1.socket",
        "docker container rm --force c1",
        "docker container rm --force c2",
        "docker network rm n1",
        "systemctl disable --now mnt-data.mount",
        "umount --force --lazy /mnt/data",
    ]
    assert not (tree / "mnt/data").exists()
    assert "etc/penstock/pki/node.key" in files(tree), "files go when all nodes have stopped"


def test_data_stay_unless_they_are_purged(programs: Programs, tree: Path, node: Any) -> None:
    write(tree / "srv/data/volume/file", "x")
    options: dict[str, Any] = {"databases": ["penstock"], "served_by": ["postgresql.service"], "data": ["/srv/data"]}
    node(**options).remove()
    assert [line for line in programs.asked if "drop" in line or line.startswith("rm ")] == []
    node(purge=True, **options).remove()
    assert [line for line in programs.asked if "drop" in line or line.startswith(("rm ", "systemctl start"))] == [
        "systemctl start postgresql.service",
        "runuser --user=postgres -- dropdb --if-exists --force penstock",
        "runuser --user=postgres -- dropuser --if-exists penstock",
        f"rm --recursive --one-file-system -- {tree}/srv/data/volume",
    ]


@pytest.mark.parametrize(
    ("maker", "made", "theirs"),
    [
        ("docker", ["containers", "engine-id", "overlay2"], ["lost+found", "models", ".snapshot"]),
        ("slurm", ["clustername", "hash.3", "job_state", "job_state.old"], ["datasets", "hash.table", "slurm.pdf"]),
    ],
)
def test_in_a_folder_that_the_site_names_only_what_was_made_there_goes(
    programs: Programs, tree: Path, node: Any, maker: str, made: list[str], theirs: list[str]
) -> None:
    for name in made + theirs:
        (tree / "lake" / name).mkdir(parents=True)
    node(purge=True, data=["/lake"], made_by={"/lake": maker}).remove()
    # two controllers of Slurm have one such folder, and empty it at once
    assert programs.told("rm ") == [f"rm --recursive --force --one-file-system -- {tree}/lake/{name}" for name in made]


def test_folders_that_the_site_names_are_told_with_who_makes_something_there() -> None:
    wiring = yaml.safe_load((ROOT / "inventory/group_vars/all/uninstall.yml").read_text())["uninstall_made_by"]
    environment = NativeEnvironment(undefined=StrictUndefined)
    environment.filters["combine"] = lambda one, other: one | other

    def told(root: str, **slurm: str) -> Any:
        return environment.from_string(wiring).render(node_docker_root=root, site_slurm=slurm)

    assert told(DOCKER_ROOT) == told(DOCKER_ROOT, state_folder=STATE_FOLDER) == {}
    assert told("/data", state_folder="/lake") == {"/data": "docker", "/lake": "slurm"}
    assert set(uninstall_node.MADE) == {"docker", "slurm"}


def test_rules_for_packets_go(programs: Programs, node: Any) -> None:
    rest = iter([(0, ""), (0, ""), (1, "")])
    played = programs.run

    def run(*command: str) -> tuple[int, str]:
        code = played(*command)
        return next(rest) if "INPUT" in command else code

    programs.answers |= {"iptables": (0, ""), "nft": (0, "")}
    made = node(chains=["PENSTOCK-EDGE"], table="penstock")
    made.run = run
    made.remove()
    assert made.done[:2] == ["remove chain PENSTOCK-EDGE", "remove table penstock"]
    assert "iptables --wait --delete-chain PENSTOCK-EDGE" in programs.asked
    assert len(programs.told("iptables --wait --delete INPUT")) == 3, "each jump, until there is none"


NOUVEAU = "etc/modprobe.d/penstock-nouveau.conf"


def test_what_kept_a_driver_away_is_taken_out_of_what_boots_too(tree: Path, programs: Programs, node: Any) -> None:
    write(tree / "usr/sbin/update-initramfs", "")
    node().remove()
    assert programs.told("update-initramfs") == [], "nothing of ours is in it"
    write(tree / NOUVEAU, "blacklist nouveau")
    node(dry=True).remove()
    assert programs.told("update-initramfs") == []
    node().remove()
    assert programs.told("update-initramfs") == ["update-initramfs -u -k all"]
    assert not (tree / NOUVEAU).exists()


def test_initial_ram_disks_that_cannot_be_made_are_tried_again(tree: Path, programs: Programs, node: Any) -> None:
    """As where /boot is full."""
    write(tree / "usr/sbin/update-initramfs", "")
    write(tree / NOUVEAU, "blacklist nouveau")
    programs.answers["update-initramfs"] = (1, "No space left on device")
    with pytest.raises(uninstall_node.UninstallError, match="No space left"):
        node().remove()
    del programs.answers["update-initramfs"]
    node().remove()
    assert len(programs.told("update-initramfs")) == 2
    assert not (tree / NOUVEAU).exists()


def test_nodes_of_slurm_lose_the_user_that_they_have_for_the_site() -> None:
    wiring = yaml.safe_load((ROOT / "inventory/group_vars/all/uninstall.yml").read_text())
    assert "'control_api' in group_names or 'cluster_engine' in group_names" in wiring["uninstall_users"]
    assert "site_slurm.state_folder" in wiring["uninstall_data"]


def test_steps_of_slurm_that_outlive_its_daemon_end_before_their_user_goes(programs: Programs, node: Any) -> None:
    programs.answers["getent"] = (0, "penstock")
    played, left = programs.run, ["4711 4712", "4712"]

    def run(*command: str) -> tuple[int, str]:
        code = played(*command)
        return (0, left.pop(0)) if command[0] == "pgrep" and left else code

    made = node(users=["penstock"])
    made.run = run
    made.remove()
    ended = [line for line in programs.asked if line.split()[0] in ("pkill", "userdel")]
    assert ended == ["pkill --signal=KILL --uid penstock"] * 2 + ["userdel penstock"]
    programs.asked.clear()
    node(users=["penstock"], dry=True).remove()
    assert programs.told("pkill") == []


def test_a_program_that_fails_is_told_with_what_it_said(programs: Programs, node: Any) -> None:
    programs.answers |= {"getent": (0, "penstock"), "userdel": (8, "penstock is logged in")}
    with pytest.raises(uninstall_node.UninstallError, match=r"`userdel penstock` .* code 8: .*logged in\. Hint"):
        node(users=["penstock"]).remove()


def test_the_wiring_names_what_the_agent_has() -> None:
    defaults = yaml.safe_load((ROOT / "roles/uninstall/defaults/main.yml").read_text())
    assert defaults["uninstall_label"] == labels.LABEL_ID
    assert defaults["uninstall_network_label"] == gang_network.LABEL
    wiring = (ROOT / "inventory/group_vars/all/uninstall.yml").read_text()
    assert f"'{egress_rules.TABLE}' if 'node_agent'" in wiring


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_what_a_role_names_after_us_is_found_again(role: Path) -> None:
    """All else that roles write is kept before (`test_what_stood_where_a_role_writes_is_kept`), and given back."""
    texts = [path.read_text() for path in role.glob("tasks/*.yml")]
    named = {path for text in texts for path in re.findall(r"(?<=[\s\"'])/etc/[\w./@-]*penstock[\w./@-]*", text)}
    for path in named:
        ours = [part for part in Path(path).parts if "penstock" in part]
        assert uninstall_node.OURS.fullmatch(ours[0]), path
