"""Pods that wait for a machine which the cluster may make: they are under way, for as long as the site says."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from appliance.agent.kubernetes import disruptions, pods, pools
from appliance.agent.kubernetes.capacity import Machine, Object
from appliance.agent.kubernetes.pod_settings import PodSettings
from common.protocol import ContainerState, ContainerStatus


class Growth:
    """Which pods wait, for which pool, and since when this agent knows."""

    def __init__(self, pod_settings: PodSettings) -> None:
        """Start with nobody waiting."""
        self._pod_settings = pod_settings
        self._since: dict[str, tuple[float, str]] = {}

    def expect(self, pod: Object, machines: Collection[Machine]) -> bool:
        """Return whether a pod without a machine waits for one that a pool may get, and remember it."""
        places = [share.uuid for share in pods.readable_shares(pod) or ()]
        pool = pools.growing(places, machines, self._pod_settings.pools)
        if not pool or pods.is_placed(pod) or disruptions.is_leaving(pod):
            return False
        self._since.setdefault(pods.id_of(pod), (time.monotonic(), pool))
        return True

    def waits(self, pod: Object) -> bool:
        """Return whether a pod waits for a machine."""
        return pods.id_of(pod) in self._since

    def is_awaited(self) -> bool:
        """Return whether any pod waits."""
        return bool(self._since)

    def keep(self, own: Iterable[Object]) -> None:
        """Forget the pods that wait no longer."""
        waiting = {pods.id_of(pod) for pod in own if not pods.is_placed(pod)}
        self._since = {identity: since for identity, since in self._since.items() if identity in waiting}

    def dress(self, pod: Object, state: ContainerState) -> ContainerState:
        """Return the state of a pod with what it waits for; lost is what has waited for too long."""
        if (waits := self._since.get(state.id)) is None or pods.is_placed(pod):
            return state
        since, pool = waits
        limit_s = self._pod_settings.grow_s
        if time.monotonic() - since > limit_s:
            error = f"the pool {pool} of the cluster got no machine for it within {limit_s:g} s"
            return state.model_copy(update={"status": ContainerStatus.FAILED, "error": error, "lost": True})
        # the control API gives that the time which a pull may take
        warning = f"it waits until the cluster's pool {pool} has another machine"
        return state.model_copy(update={"status": ContainerStatus.PULLING, "warning": warning})
