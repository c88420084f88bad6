"""Waves: to which nodes a deploy goes, in which order, and how many workers it may leave out. Pure.

Reservoir, master and storage come first, because all others take something from them. What is a worker and nothing
else comes after them, some at a time.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.site.model import DeploySettings, NodeRole, Site
from common.errors import InputError, Problem


@dataclass(frozen=True)
class Plan:
    """The names of the nodes that come `first`, and the `workers` after them, of which any number may be left out if
    `all_may_fail`.
    """

    first: list[str]
    workers: list[str]
    settings: DeploySettings
    all_may_fail: bool = False

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes that the deploy goes to."""
        return self.first + self.workers

    @property
    def most(self) -> int:
        """How many workers may be left out: a share of them, and one of a few unless the site says none."""
        if self.all_may_fail:
            return len(self.workers)
        share = self.settings.max_fail_percentage
        return max(min(share, 1), len(self.workers) * share // 100)

    def waves(self, workers: Sequence[str]) -> list[Sequence[str]]:
        """Return `workers` in the parts that are changed at the same time."""
        size = self.settings.wave
        return [workers[start : start + size] for start in range(0, len(workers), size)]


def plan(site: Site, limit: Sequence[str] | None = None, *, all_may_fail: bool = False) -> Plan:
    """Return where a deploy goes: to all, or to those named in `limit` beside those that come first always.

    Raises InputError that lists the names that no node has.
    """
    names = [node.name for node in site.nodes]
    if unknown := [_unknown(name, names) for name in limit or () if name not in names]:
        raise InputError.of(unknown)
    workers = [node.name for node in site.nodes if node.roles == [NodeRole.WORKER]]
    chosen = [name for name in workers if limit is None or name in limit]
    return Plan([name for name in names if name not in workers], chosen, site.deploy, all_may_fail)


def _unknown(name: str, names: Sequence[str]) -> Problem:
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"name some of {', '.join(names)}"
    return Problem("--limit", f"the site has no node {name!r}", hint)
