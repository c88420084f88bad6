"""Packages that only some sites need, looked for in the bundles that a site has before any node is asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from appliance.site import inventory
from appliance.site.groups import CLUSTER_ENGINE, MONITORING, MUNGE, SLURM_ACCOUNTING
from appliance.site.model import Site
from appliance.site.preflight import packages
from common.errors import InputError, Problem
from reservoir.contents.artifact import DebianArtifact
from reservoir.contents.bundle import Bundle

MANIFESTS = {
    MONITORING: "monitoring.yml",
    **dict.fromkeys((MUNGE, SLURM_ACCOUNTING, CLUSTER_ENGINE), "slurm.yml"),
}
"""By the group of nodes, the manifest of the product that has the packages of its role."""


def require(site: Site, bundles: Iterable[Bundle], roles: Path) -> None:
    """Raise InputError that lists what no bundle has for nodes of a site; `roles` is the folder of the roles."""
    members = inventory.build(site, version="")["all"]["children"]
    held = {
        (release, deb.name)
        for bundle in bundles
        for deb in bundle.of_kind(DebianArtifact)
        for release in {target.release for target in bundle.targets if target.name in deb.targets}
    }
    problems: list[Problem] = []
    for index, node in enumerate(site.nodes):
        for manifest in dict.fromkeys(MANIFESTS.values()):
            groups = [group for group in MANIFESTS if MANIFESTS[group] == manifest]
            of_node = [group for group in groups if node.name in members[group]["hosts"]]
            lacking = [name for name in packages(of_node, {None}, roles) if (node.release, name) not in held]
            if lacking:
                reason = f"{node.name} needs {', '.join(lacking)}, and no bundle has that for {node.release}"
                hint = f"build a bundle from {manifest} of the product, import it, and deploy again"
                problems.append(Problem(f"nodes[{index}]", reason, hint))
    if problems:
        raise InputError.of(problems)
