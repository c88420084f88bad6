#!/usr/bin/python3
"""The end of a site on one node: what Penstock brought goes, and what was there before comes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: uninstall_node
short_description: Remove Penstock from a node
description:
  - Stops what Penstock runs on a node, then removes it and gives back the files of which copies were kept.
  - A dry run says what would be removed, and changes nothing.
author: Penstock
options:
  step: {type: str, required: true, choices: [stop, remove], description: Stop comes first on all nodes of a site.}
  mounts: {type: list, elements: path, default: [], description: Where storage of the site is mounted.}
  services: {type: list, elements: str, default: [], description: Units of the distribution that roles run.}
  theirs: {type: list, elements: str, default: [], description: Those of them that ran before Penstock.}
  configured_by: {type: dict, default: {}, description: "By unit, the file that says, where it was kept, the same."}
  masked: {type: list, elements: str, default: [], description: Units that roles have masked.}
  label: {type: str, required: true, description: Label of Docker that containers and networks of ours have.}
  network_label: {type: str, required: true, description: Label of networks between containers of ours.}
  chains: {type: list, elements: str, default: [], description: Chains of iptables below INPUT.}
  table: {type: str, default: "", description: Table of nftables.}
  users: {type: list, elements: str, default: [], description: System users.}
  folders: {type: list, elements: path, default: [], description: Folders that go as a whole.}
  stays: {type: list, elements: str, default: [], description: Patterns of files in them that are an administrator's.}
  kept: {type: path, required: true, description: Folder with copies of what was there before, and their record.}
  purge: {type: bool, default: false, description: Whether data goes, too.}
  databases: {type: list, elements: str, default: [], description: "Databases that go then, and roles of these names."}
  served_by: {type: list, elements: str, default: [], description: Units that serve them.}
  data: {type: list, elements: path, default: [], description: Folders that are emptied then.}
  made_by: {type: dict, default: {}, description: "By folder of `data`, who made there what alone goes."}
  root: {type: path, default: /, description: Root of the file system.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "step": {"type": "str", "required": True, "choices": ["stop", "remove"]},
    "mounts": {"type": "list", "elements": "path", "default": []},
    "services": {"type": "list", "elements": "str", "default": []},
    "theirs": {"type": "list", "elements": "str", "default": []},
    "configured_by": {"type": "dict", "default": {}},
    "masked": {"type": "list", "elements": "str", "default": []},
    "label": {"type": "str", "required": True},
    "network_label": {"type": "str", "required": True},
    "chains": {"type": "list", "elements": "str", "default": []},
    "table": {"type": "str", "default": ""},
    "users": {"type": "list", "elements": "str", "default": []},
    "folders": {"type": "list", "elements": "path", "default": []},
    "stays": {"type": "list", "elements": "str", "default": []},
    "kept": {"type": "path", "required": True},
    "purge": {"type": "bool", "default": False},
    "databases": {"type": "list", "elements": "str", "default": []},
    "served_by": {"type": "list", "elements": "str", "default": []},
    "data": {"type": "list", "elements": "path", "default": []},
    "made_by": {"type": "dict", "default": {}},
    "root": {"type": "path", "default": "/"},
}
OURS = re.compile(r"(\d+-?)?penstock([.@-].*)?")
"""How roles name files and folders of ours among those of others."""

DISABLED = ".disabled-by-penstock"
UNITS = "etc/systemd/system"
SHARED = ("/opt/penstock", "/var/lib/penstock", "/var/log/penstock")
"""Folders that go with the last that lies in them."""

NEVER_REMOVED = ("/etc/hosts", "/etc/localtime")
"""A node needs them, whoever wrote them first."""

BOOTED = "/etc/modprobe.d/penstock-nouveau.conf"
"""What boots has a copy of it: without a new one the driver that it names stays away."""

MADE = {
    "docker": (
        *("buildkit", "containerd", "containers", "engine-id", "image", "network", "plugins", "rootfs", "runtimes"),
        *("swarm", "tmp", "trust", "volumes", "btrfs", "fuse-overlayfs", "overlay2", "vfs", "zfs"),
    ),
    "slurm": (
        *("assoc_mgr_state*", "assoc_usage*", "clustername", "dbd.messages*", "fed_mgr_state*", "hash.[0-9]"),
        *("heartbeat*", "job_state*", "last_config_lite*", "last_tres*", "layouts_state_*", "node_state*"),
        *("part_state*", "priority_last_decay_ran*", "qos_usage*", "resv_state*", "trigger_state*"),
    ),
}
"""What programs make in a folder that the site names: beside it lies what is somebody else's."""

BLOCK = re.compile(r"^# BEGIN penstock\n.*?^# END penstock\n", re.MULTILINE | re.DOTALL)
RECORD = "record.json"
ENDS_S, PAUSE_S = 20.0, 0.2
"""So long what was killed may take to be gone, and how often it is looked."""

Run = Callable[..., tuple[int, str]]


def main() -> None:
    """Do one step, and return what it did as `uninstall_done`, or would do in a dry run."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run(*command: str) -> tuple[int, str]:
        code, out, err = module.run_command(["timeout", "300", *command], cwd="/")
        return code, (out if code == 0 else out + err).strip()

    try:
        node = Node(module.params, run, dry=module.check_mode)
        (node.stop if module.params["step"] == "stop" else node.remove)()
    except UninstallError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(node.done), uninstall_done=node.done)


class UninstallError(Exception):
    """What keeps a node from being cleaned; it says what to do."""


class Node:
    """A node that leaves a site which ends; `done` says what was done, one line each."""

    def __init__(self, asked: dict[str, Any], run: Run, *, dry: bool) -> None:
        self.asked, self.run, self.dry = asked, run, dry
        self.root = Path(asked["root"])
        self.done: list[str] = []

    def stop(self) -> None:
        """Stop our units, end the containers of sessions, and take storage off."""
        if units := self._own_units():
            self._do(f"stop {', '.join(units)}", "systemctl", "stop", *units)
        self._end_containers()
        for path in self.asked["mounts"]:
            self._unmount(path)

    def remove(self) -> None:
        """Remove what is ours, and give back what was there before; data where it is to be purged."""
        record = self._record()
        if self.asked["purge"]:
            self._drop_databases()
        ours = [unit for unit in self._known(self.asked["services"]) if not self._is_theirs(unit, record)]
        if ours:
            # at once: a socket would start its service again
            self._do(f"stop {', '.join(ours)}", "systemctl", "stop", *ours)
            self._do("", "systemctl", "disable", *ours)
        self._close_chains()
        self._remove_files(record)
        self._do_always("systemctl", "daemon-reload")
        for unit in self.asked["masked"]:
            if os.path.lexists(self._at(f"/{UNITS}/{unit}")):
                self._do(f"unmask {unit}", "systemctl", "unmask", unit)
        if self.done:
            self._settle([unit for unit in self.asked["services"] if unit not in ours])
        self._remove_users()
        if self.asked["purge"]:
            self._empty_data()
        for folder in SHARED:
            if not self.dry and self._at(folder).is_dir() and not any(self._at(folder).iterdir()):
                self._at(folder).rmdir()

    def _own_units(self) -> list[str]:
        """Return our units that systemd has loaded; links that start them with the machine go with our files."""
        out = self.run("systemctl", "list-units", "--plain", "--no-legend", "penstock*")[1]
        return sorted(line.split()[0] for line in out.splitlines() if not line.split()[0].endswith(".slice"))

    def _known(self, units: list[str]) -> list[str]:
        """Return the units that the node has, and that run or start with it."""
        found = []
        for unit in units:
            code, out = self.run("systemctl", "show", "--property=LoadState,ActiveState,UnitFileState", unit)
            state = dict(line.partition("=")[::2] for line in out.splitlines())
            runs = state.get("ActiveState") in ("active", "activating", "reloading")
            if code == 0 and state.get("LoadState") == "loaded" and (runs or state.get("UnitFileState") == "enabled"):
                found.append(unit)
        return found

    def _is_theirs(self, unit: str, record: dict[str, str]) -> bool:
        file = self.asked["configured_by"].get(unit, "")
        return unit in self.asked["theirs"] or record.get(file) == "kept"

    def _end_containers(self) -> None:
        if self.run("docker", "version")[0] != 0:
            return
        labelled = f"--filter=label={self.asked['label']}"
        for identity in self.run("docker", "container", "ls", "--all", "--quiet", labelled)[1].split():
            self._do(f"remove container {identity}", "docker", "container", "rm", "--force", identity)
        labelled = f"--filter=label={self.asked['network_label']}"
        for identity in self.run("docker", "network", "ls", "--quiet", labelled)[1].split():
            self._do(f"remove network {identity}", "docker", "network", "rm", identity)

    def _unmount(self, path: str) -> None:
        """Unmount a storage, at once where its server does not answer; a folder that was made for it goes."""
        unit = self.run("systemd-escape", "--path", "--suffix=mount", path)[1]
        if (self.root / UNITS / unit).exists():
            self._do(f"unmount {path}", "systemctl", "disable", "--now", unit)
        if not self.dry and self.run("mountpoint", "--quiet", path)[0] == 0:
            self._do(f"unmount {path}", "umount", "--force", "--lazy", path)
        folder = self._at(path)
        if not self.dry and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def _drop_databases(self) -> None:
        names = self.asked["databases"]
        if names:
            self._do("", "systemctl", "start", *self.asked["served_by"])
        for name in names:
            as_owner = ("runuser", "--user=postgres", "--")
            self._do(f"drop database {name}", *as_owner, "dropdb", "--if-exists", "--force", name)
            self._do(f"drop role {name}", *as_owner, "dropuser", "--if-exists", name)

    def _close_chains(self) -> None:
        for chain in self.asked["chains"]:
            if self.run("iptables", "--wait", "--list-rules", chain)[0] == 0:
                while not self.dry and self.run("iptables", "--wait", "--delete", "INPUT", "--jump", chain)[0] == 0:
                    pass
                self._do(f"remove chain {chain}", "iptables", "--wait", "--flush", chain)
                self._do("", "iptables", "--wait", "--delete-chain", chain)
        table = self.asked["table"]
        if table and self.run("nft", "list", "table", "inet", table)[0] == 0:
            self._do(f"remove table {table}", "nft", "delete", "table", "inet", table)

    def _remove_files(self, record: dict[str, str]) -> None:
        booted = self._at(BOOTED)
        kept_away = booted.read_bytes() if booted.exists() and self._at("/usr/sbin/update-initramfs").exists() else None
        for path in self._own_files():
            self._delete(path)
        for folder in self.asked["folders"]:
            self._delete_but(self._at(folder))
        hosts = self._at("/etc/hosts")
        text = hosts.read_text() if hosts.exists() else ""
        if BLOCK.search(text):
            self.done.append("remove names of nodes from /etc/hosts")
            if not self.dry:
                hosts.write_text(BLOCK.sub("", text))  # a container's cannot be replaced
        for path in sorted((self.root / "etc/apt").rglob(f"*{DISABLED}")):
            self.done.append(f"enable {self._name(path).removesuffix(DISABLED)}")
            if not self.dry:
                path.rename(path.with_name(path.name.removesuffix(DISABLED)))
        for path, what in sorted(record.items()):
            self._give_back(path, what)
        if record:
            self._delete(self._at(self.asked["kept"]))
        if kept_away is not None:
            try:
                self._do("make the initial RAM disks anew", "update-initramfs", "-u", "-k", "all")
            except UninstallError:
                # by it a next try knows that there is something left to do
                booted.write_bytes(kept_away)
                raise

    def _own_files(self) -> Iterator[Path]:
        """Yield what bears our name below /etc, and below folders of services that have some of ours."""
        tops = ("etc", "usr/local/share/ca-certificates", "var/lib/private", "var/cache/private")
        skipped = {self._at(folder) for folder in self.asked["folders"]}
        for top in tops:
            for folder, names, files in os.walk(self.root / top):
                mine = [name for name in (*names, *files) if OURS.fullmatch(name)]
                names[:] = [name for name in names if name not in mine]
                yield from (path for path in sorted(Path(folder) / name for name in mine) if path not in skipped)

    def _give_back(self, path: str, what: str) -> None:
        """Put back what stood at a path before; where there was nothing, ours goes."""
        there, copy = self._at(path), self._at(self.asked["kept"]) / path.lstrip("/")
        if path in NEVER_REMOVED[:1]:
            return
        if what == "kept" and os.path.lexists(copy):
            if _same(copy, there):
                return
            self.done.append(f"give back {path}")
            if not self.dry:
                there.parent.mkdir(parents=True, exist_ok=True)
                beside = there.with_name(f".{there.name}.unfinished")
                beside.unlink(missing_ok=True)
                shutil.copy2(copy, beside, follow_symlinks=False)
                owner = copy.lstat()
                os.chown(beside, owner.st_uid, owner.st_gid, follow_symlinks=False)
                beside.rename(there)
        elif what != "kept" and path not in NEVER_REMOVED:
            self._delete(there)

    def _settle(self, left: list[str]) -> None:
        """Let what stays read what it has now."""
        self._do_always("systemctl", "reset-failed", "penstock*")
        for unit in ("systemd-journald.service", "logrotate.timer", *left):
            self._do_always("systemctl", "try-restart", unit)
        if (self.root / "usr/sbin/update-ca-certificates").exists():
            self._do_always("update-ca-certificates", "--fresh")

    def _remove_users(self) -> None:
        for user in self.asked["users"]:
            if self.run("getent", "passwd", user)[0] == 0:
                self._end_processes(user)
                self._do(f"remove user {user}", "userdel", user)

    def _end_processes(self, user: str) -> None:
        """End what a user of ours still runs: steps of Slurm's jobs outlive its daemon, and wait for an agent."""
        until = time.monotonic() + ENDS_S
        while not self.dry and time.monotonic() < until:
            code, found = self.run("pgrep", "--uid", user)
            if code != 0 or not found:
                return
            self._do_always("pkill", "--signal=KILL", "--uid", user)
            time.sleep(PAUSE_S)

    def _empty_data(self) -> None:
        for folder in self.asked["data"]:
            maker = self.asked["made_by"].get(folder, "")
            # two controllers of Slurm have one folder, and empty it at once
            options = ("--recursive", *(("--force",) if maker else ()), "--one-file-system", "--")
            made = MADE.get(maker, ("*",))
            for path in sorted({path for pattern in made for path in self._at(folder).glob(pattern)}):
                self._do(f"remove {self._name(path)}", "rm", *options, str(path))

    def _delete_but(self, folder: Path) -> None:
        """Remove a folder, but what an administrator put there, which only a purge takes."""
        patterns = [] if self.asked["purge"] else self.asked["stays"]
        left = {path for pattern in patterns for path in folder.glob(pattern)}
        if not left:
            self._delete(folder)
            return
        for path in sorted(folder.iterdir()):
            if path not in left:
                self._delete(path)

    def _delete(self, path: Path) -> None:
        if not os.path.lexists(path):
            return
        self.done.append(f"remove {self._name(path)}")
        if self.dry:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def _do(self, what: str, *command: str) -> None:
        """Run a command that changes the node; `what` it is for is told, where that is not told already."""
        if what:
            self.done.append(what)
        if self.dry:
            return
        code, said = self.run(*command)
        if code != 0:
            reason = f"`{' '.join(command)}` ended with code {code}: {said}"
            raise UninstallError(f"{reason}. Hint: mend that, and run the command again")

    def _do_always(self, *command: str) -> None:
        """Run a command whose failure leaves nothing of ours."""
        if not self.dry:
            self.run(*command)

    def _record(self) -> dict[str, str]:
        path = self._at(self.asked["kept"]) / RECORD
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return known

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _name(self, path: Path) -> str:
        return f"/{path.relative_to(self.root)}"


def _same(copy: Path, there: Path) -> bool:
    if copy.is_symlink() or there.is_symlink() or not there.exists():
        return copy.is_symlink() and there.is_symlink() and copy.readlink() == there.readlink()
    return copy.read_bytes() == there.read_bytes()


if __name__ == "__main__":
    main()
