"""Health of what has no agent: the controller looks at such nodes by the playbook, and at backups and reservoir."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from appliance.site import inventory, playbook, served_health
from appliance.site.backup import health
from appliance.site.backup.make import FOLDER
from appliance.site.deployment import ROOT, STATE
from appliance.site.inventory import without_agent
from appliance.site.model import Node, NodeRole, Site
from common import machine_checks
from common.check_protocol import CheckReport
from common.checks import Check
from common.health import DampedChecks, Damping
from common.repair_protocol import NodeChecks

SEEN = "penstock_health"
Key = tuple[str, str, str]


class NodeHealth:
    """Looks again and again; what counts is damped as agents do."""

    def __init__(self, *, state: Path = STATE, backups: Path = FOLDER, root: Path = ROOT) -> None:
        """Begin with nothing known; `root` is the reservoir's."""
        self._state = state
        self._backups = backups
        self._root = root
        self._damping = Damping()
        self._checks = DampedChecks[Key](self._damping)

    def look(self, site: Site, moment: float) -> list[NodeChecks]:
        """Look once, at a moment in seconds that never step, and return how all checks count."""
        damping = Damping(site.health.health_looks, site.health.health_good_looks)
        if damping != self._damping:
            self._damping, self._checks = damping, DampedChecks[Key](damping, self._checks.counts)
        found = {node.name: checks for node, checks in self._nodes(site)}
        self._checks.see({(name, each.id, each.subject): each for name in found for each in found[name]}, moment)
        counts: dict[str, list[Check]] = {name: [] for name in found}
        for (name, _, _), check in self._checks.counts.items():
            counts.setdefault(name, []).append(check)
        # backups are judged by all that were taken, bundles by a date: neither goes to and fro
        now = datetime.now(UTC)
        counts[""] = [
            *health.judged(site, self._backups, now),
            *served_health.checks(self._root, site.health.health_bundle_warn_days, now),
        ]
        return [
            NodeChecks(node=name, checks=[CheckReport.of(each) for each in checks]) for name, checks in counts.items()
        ]

    def _nodes(self, site: Site) -> Iterator[tuple[Node, list[Check]]]:
        nodes = without_agent(site)
        hosts = inventory.build(site, version=version("penstock"), state=str(self._state))
        # runs of its own: those of deploys are kept longer, and write their inventory beside
        folder = self._state / "health"
        result = playbook.run("health", hosts, state=folder, listen=_silent, publish=[SEEN], together=False)
        if not result.published and not result.failures:
            result.require_success()
        reasons = {event.node: event.reason for event in result.failures}
        for node in nodes:
            if seen := result.published.get(node.name, {}).get(SEEN):
                yield node, [_answers(node), *judged(site, node, seen)]
            else:
                yield node, [_answers(node, reasons.get(node.name) or "it said nothing")]


def judged(site: Site, node: Node, seen: Mapping[str, Any]) -> Iterator[Check]:
    """Judge what a node says; the disks and the memory of the master the leader of the API sees sooner."""
    bounds, is_master = site.health, NodeRole.MASTER in node.roles
    leaders = set(map(str, machine_checks.LEADERS_FOLDERS)) if is_master else set()
    for folder, (used, files) in seen["disks"].items():
        if folder not in leaders:
            full = bounds.health_disk_warn_percent, site.disk.disk_stop_percent
            yield machine_checks.disk(folder, used, files, *full)
    if not is_master:
        memory = bounds.health_memory_warn_percent, bounds.health_memory_fail_percent
        yield machine_checks.memory_of(seen["memory"], *memory)
    yield machine_checks.clock(**seen["clock"])
    for unit in machine_checks.units(**seen["units"]):
        # the ladder for services is one of nodes with an agent
        yield replace(unit, repair="")
    days = bounds.health_certificate_warn_days, bounds.health_certificate_fail_days
    for path, until in seen["certificates"].items():
        if until is not None:
            identity = "authority" if path.endswith("ca.crt") else "certificate"
            yield machine_checks.certificate(identity, path, until, *days)


def _answers(node: Node, reason: str = "") -> Check:
    hint = f"look whether {node.name} is up, and whether SSH from the reservoir node reaches it"
    return Check.of("answers", "node answers", ok=not reason, evidence=reason or "it answers", hint=hint)


def _silent(_: playbook.Event) -> None:
    """Hear nothing of how a look goes on."""
