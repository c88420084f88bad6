#!/usr/bin/python3
"""Services that still run what was there before.

Handlers restart what a deploy has changed. One that was killed, or a node that was cut off, between a change and its
handler leaves a service that no later deploy would touch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: stale_services
short_description: Restart services that started before what they run and read
description: Finds services whose program, unit or files changed after they started or were reloaded, and restarts them.
author: Penstock
options:
  services: {type: list, elements: str, required: true, description: Units; what does not run is left alone.}
  files: {type: dict, default: {}, description: By unit, patterns of the files that it reads when it starts.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "services": {"type": "list", "elements": "str", "required": True},
    "files": {"type": "dict", "default": {}},
}
PROPERTIES = (
    "ActiveState",
    "ActiveEnterTimestamp",
    "ExecMainStartTimestamp",
    "StateChangeTimestamp",
    "MainPID",
    "FragmentPath",
    "DropInPaths",
    "NeedDaemonReload",
)


def main() -> None:
    """Look at each service, restart those that are stale, and return `penstock_running` and `restarted`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run(*command: str) -> tuple[int, str]:
        code, out, err = module.run_command(["timeout", "120", *command], cwd="/")
        return code, (out if code == 0 else out + err).strip()

    files = module.params["files"]
    found = {unit: running(unit, files.get(unit, []), run) for unit in module.params["services"]}
    stale = [unit for unit, state in found.items() if state and (state["newer"] or state["replaced"])]
    if stale and not module.check_mode:
        run("systemctl", "daemon-reload")
        for unit in stale:
            code, said = run("systemctl", "restart", unit)
            if code:
                module.fail_json(msg=f"{unit} does not start again: {said}. Hint: look at `journalctl -u {unit}`")
    module.exit_json(changed=bool(stale), penstock_running=found, restarted=stale)


def running(unit: str, patterns: list[str], run: Callable[..., tuple[int, str]]) -> dict[str, Any] | None:
    """Return since when a unit runs, and what of it changed since; None where it does not run.

    `since` is in seconds since 1970, `newer` lists files, `replaced` says that its program is another one now.
    """
    code, out = run("systemctl", "show", unit, "--timestamp=unix", f"--property={','.join(PROPERTIES)}")
    values = {name: value for name, _, value in (line.partition("=") for line in out.splitlines())}
    if code or values.get("ActiveState") != "active":
        return None
    # a unit without a process of its own, such as a timer or that of PostgreSQL's clusters, has the moment of its state
    since = _seconds(values.get("ExecMainStartTimestamp") or values["ActiveEnterTimestamp"])
    # a reload reads files anew, and no program or unit
    read = max(since, _seconds(values.get("StateChangeTimestamp", "")))
    own = [values["FragmentPath"], *values["DropInPaths"].split()]
    # systemd heeds by itself when a service is to come back
    own = [path for path in own if path and Path(path).name != "restart.conf"]
    newer = {*_newer(own, since), *_newer(patterns, read)}
    if values["NeedDaemonReload"] == "yes":
        newer.add(values["FragmentPath"])
    return {
        "since": since,
        "newer": sorted(newer),
        "replaced": replaced(Path("/proc") / values.get("MainPID", "0") / "exe"),
    }


def replaced(program: Path) -> bool:
    """Return whether the file of a running program was deleted, as an upgrade of its package does."""
    try:
        return str(program.readlink()).endswith(" (deleted)")
    except OSError:
        return False


def _newer(patterns: Any, since: int) -> set[str]:
    paths = [path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))]
    # systemd tells whole seconds
    return {str(path) for path in paths if path.stat().st_mtime >= since + 1}


def _seconds(moment: str) -> int:
    return int(moment.lstrip("@") or 0)


if __name__ == "__main__":
    main()
