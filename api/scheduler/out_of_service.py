"""Nodes in service and out of it, in reasons to wait: what is free on the others, and quotas that are too much."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from api.scheduler.capacity import Free
from api.scheduler.cluster import ClusterState
from api.scheduler.ledger import Ledger
from api.scheduler.phrases import gpus, some
from api.scheduler.signature import Signature, signature_of
from api.scheduler.snapshot import Workload
from api.scheduler.topology import allowed
from common.sentence import Sentence

NAMED = 3
"""So many nodes are named at most."""


class Service:
    """What is in service at the end of a decision, and what is not; `unreserved` is what is free if nothing is kept."""

    def __init__(self, cluster: ClusterState, ledger: Ledger, unreserved: Callable[[], Free]) -> None:
        self._layout, self._free, self._ledger, self._unreserved = cluster.layout, cluster.state, ledger, unreserved
        self._any_closed = not self._layout.open.all()
        self._outside: dict[Signature, str] = {}
        self._uses_all: dict[Signature, bool] = {}

    def free_outside(self, workload: Workload) -> str:
        """Return which GPUs that it may use are free on nodes out of service, or nothing.

        Nodes that are unhealthy are told with their checks elsewhere.
        """
        if not self._any_closed or not workload.gpu_milli:
            return ""
        signature = signature_of(workload)
        if signature not in self._outside:
            self._outside[signature] = self._look_outside(workload)
        return self._outside[signature]

    def _look_outside(self, workload: Workload) -> str:
        layout = self._layout
        closed = allowed(layout, workload) & ~layout.open & layout.has_storages(workload) & layout.speaks(workload)
        closed[list(layout.unhealthy)] = False
        rows = np.flatnonzero(closed)
        left = np.where(layout.usable_for(workload)[rows], self._free.milli[rows].clip(0), 0).sum(axis=1)
        if not left.any():
            return ""
        return Sentence(
            "free on nodes out of service: {gpus} ({nodes}); ask the administrator when they come back",
            gpus=gpus(int(left.sum())),
            nodes=some([layout.nodes[row].name for row in rows[left > 0]], NAMED),
        )

    def quotas_beyond(self, workload: Workload) -> str:
        """Return that it waits within its quota, as quotas are more than what is in service; nothing otherwise.

        Who may not use all that is in service may wait for other reasons, whatever is held elsewhere. What other
        companies hold is told to nobody: numbers of the whole site are only for people of a site with one.
        """
        if not self._is_filled or not workload.total_milli or not self._ledger.in_quota(workload):
            return ""
        others = self._held - self._ledger.holdings_of(workload.project).retained
        is_enough = self._held + workload.total_milli <= self._in_service or self._left >= workload.total_milli
        if is_enough or not others or not self._may_use_all(workload):
            return ""
        if not self._is_of_one_domain:
            return Sentence(
                "all quotas come to more than nodes in service have: what other projects hold is guaranteed to them"
            )
        return Sentence(
            "all quotas come to {quotas} and nodes in service have {most}: other projects hold {held} within what is "
            "guaranteed to them",
            quotas=gpus(self._quotas),
            most=gpus(self._in_service),
            held=gpus(others),
        )

    def _may_use_all(self, workload: Workload) -> bool:
        """Return whether it may have every GPU in service."""
        signature = signature_of(workload)
        if signature not in self._uses_all:
            layout = self._layout
            nodes = layout.takes(workload) & allowed(layout, workload)
            others = layout.present & layout.open[:, None] & ~(layout.usable_for(workload) & nodes[:, None])
            self._uses_all[signature] = not others.any()
        return self._uses_all[signature]

    @cached_property
    def _is_of_one_domain(self) -> bool:
        """Whether all projects are of one domain, or of none."""
        names = {*self._ledger.projects, *self._ledger.holdings}
        return len({self._ledger.project(name).domain for name in names}) <= 1

    @cached_property
    def _is_filled(self) -> bool:
        """Whether quotas are more than what is in service, and nobody has more than is guaranteed."""
        return self._quotas > self._in_service and not self._ledger.over_quota("")

    @cached_property
    def _quotas(self) -> int:
        """What is guaranteed to all: of a domain that shares its own quota, where that is more than its projects'."""
        projects, domains = self._ledger.projects, self._ledger.domains
        further = 0
        for name, members in domains.members.items():
            further += max(0, domains.domains[name].quota_milli - sum(projects[each].quota_milli for each in members))
        return further + sum(project.quota_milli for project in projects.values())

    @cached_property
    def _in_service(self) -> int:
        return int(self._layout.shared_of_node[self._layout.open].sum())

    @cached_property
    def _held(self) -> int:
        return sum(own.retained for own in self._ledger.holdings.values())

    @cached_property
    def _left(self) -> int:
        """What is free on nodes in service."""
        return int(self._unreserved().milli[self._layout.open].clip(0).sum())
