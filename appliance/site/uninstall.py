"""The end of a site: what Penstock brought leaves all nodes, the controller last, and data stay unless they are purged.

Nodes are asked first, and nothing goes on where one of them does not answer, unless it is left as it is by name. What
was done already can be done again: the controller keeps its keys to the nodes until all others are clean.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from appliance.site import inventory, playbook
from appliance.site.alone import alone
from appliance.site.deployment import STATE, require_controller
from appliance.site.groups import UNINSTALL
from appliance.site.model import Site
from appliance.site.playbook import Listener
from common.errors import InputError, PartialError, Problem

DONE = "uninstall_done"
INSTALLED = (Path("/usr/local/bin/penstock"), Path("/opt/penstock"))
"""What `install.sh` put on the controller."""

DATA = Path("/var/lib/penstock")
"""Where the controller has what the site is known by, what the reservoir serves, and backups."""

STOP, REMOVE = "stop", "remove"

Told = dict[str, list[str]]
"""What is done, or would be, by the name of the node."""


def foreseen(
    site: Site, listen: Listener, *, purge: bool = False, left: Collection[str] = (), state: Path = STATE
) -> Told:
    """Return what would be done on each node but those that are `left` as they are; changes nothing.

    Raises ProcessError where a node does not answer.
    """
    require_controller(site)
    nodes = _nodes(site, left)
    told: Told = {name: [] for name in nodes}
    for step in (STOP, REMOVE):
        _add(told, _play(site, step, nodes, partial(playbook.run, check=True), listen, purge=purge, state=state))
    return told


def uninstall(
    site: Site,
    listen: Listener,
    *,
    purge: bool = False,
    left: Collection[str] = (),
    state: Path = STATE,
    installed: Sequence[Path] = INSTALLED,
    data: Path = DATA,
) -> Told:
    """Remove Penstock from all nodes but those that are `left` as they are, and from the controller at the end.

    With `purge` the data go, too. Raises PartialError that names the nodes which failed; the controller stays then.
    """
    require_controller(site)
    nodes = _nodes(site, left)
    told: Told = {name: [] for name in nodes}
    with alone(state) as held:
        for step in (STOP, REMOVE):
            run = partial(playbook.run, held=held)
            _add(told, _play(site, step, nodes, run, listen, purge=purge, state=state))
        for path in (*installed, *((data,) if purge else ())):
            if _delete(path):
                told[site.reservoir.name].append(f"remove {path}")
    return told


def _nodes(site: Site, left: Collection[str]) -> list[str]:
    names = [node.name for node in site.nodes]
    for name in left:
        if name not in names:
            raise InputError(f"the site has no node {name}", where="--leave", hint=f"name some of {', '.join(names)}")
    if site.reservoir.name in left:
        reason = f"{site.reservoir.name} is the controller, which this runs on"
        raise InputError(reason, where="--leave", hint="leave other nodes")
    return [name for name in names if name not in left]


def _play(
    site: Site,
    step: str,
    nodes: Collection[str],
    run: partial[playbook.Result],
    listen: Listener,
    *,
    purge: bool,
    state: Path,
) -> Told:
    hosts = inventory.build(site, version="", state=str(state))
    hosts["all"]["vars"]["site_end"] = {"step": step, "purge": purge}
    result = run(UNINSTALL, hosts, state=state, listen=listen, publish=[DONE], limit=nodes, together=False)
    if broken := result.failed():
        names = ",".join(broken)
        stays = Problem(
            site.reservoir.name,
            f"it stays the controller until {names} can be cleaned",
            f"mend that and run the command again, or leave them as they are with --leave {names}",
        )
        raise PartialError.of([*(problem for listed in broken.values() for problem in listed), stays])
    result.require_success()
    return {name: said[DONE] for name, said in result.published.items()}


def _add(told: Told, more: Told) -> None:
    for name, lines in more.items():
        told[name].extend(lines)


def _delete(path: Path) -> bool:
    """Remove a file, or a folder with all that is in it; returns whether it was there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return True
    present = path.exists() or path.is_symlink()
    path.unlink(missing_ok=True)
    return present
