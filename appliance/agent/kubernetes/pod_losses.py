"""Losses of pods: which the cluster has taken away, which it told of too briefly, and which nobody waits for."""

from __future__ import annotations

from collections.abc import Callable

from appliance.agent.kubernetes import disruptions, pods
from appliance.agent.kubernetes.capacity import FINAL_PHASES, Machine, Object
from common.protocol import ContainerState, ContainerStatus


class PodLosses:
    """What the agent remembers of pods beside the cluster's own word; after a restart it begins with nothing."""

    def __init__(self, machine: Callable[[str], Machine | None]) -> None:
        """Start with no loss. `machine` finds a machine of the cluster by its name."""
        self.vanished: dict[str, ContainerState] = {}
        """Pods that are gone, by their ids, until the control API has been told and removes them."""
        self._machine = machine
        self._removed: set[str] = set()
        self._let_go: set[str] = set()

    def remove(self, pod: Object) -> None:
        """Note that it is us who wants a pod away."""
        self._removed.add(pods.id_of(pod))

    def let_go(self, pod: Object) -> None:
        """Wait no longer for a pod of which nothing runs, or nobody could end what runs."""
        self._let_go.add(pod["metadata"]["uid"])

    def is_let_go(self, pod: Object) -> bool:
        """Return whether nobody waits for a pod any more."""
        return pod["metadata"]["uid"] in self._let_go

    def note_gone(self, pod: Object) -> None:
        """Remember a pod that is gone, if the cluster took it away."""
        self._let_go.discard(pod["metadata"]["uid"])
        identity = pods.id_of(pod)
        if identity in self._removed:
            self._removed.discard(identity)
        elif loss := self._loss_of(pod) or self._silence_of(pod):
            self.vanished[identity] = pods.state_of(pod, loss)

    def state_of(self, pod: Object) -> ContainerState:
        """Return the state of a pod, which is lost where the cluster took it away."""
        state = pods.state_of(pod, self._loss_of(pod))
        if state.status is ContainerStatus.RUNNING and (silence := self._silence_of(pod)):
            return state.model_copy(update={"warning": state.warning or silence})
        return state

    def is_given_up(self, pod: Object) -> bool:
        """Return whether the cluster has given a pod up together with its machine, which does not end it."""
        return bool(self._loss_of(pod) and self._silence_of(pod))

    def _loss_of(self, pod: Object) -> str:
        # older clusters do not say why they delete a pod
        by_others = disruptions.is_leaving(pod) and pods.id_of(pod) not in self._removed
        return disruptions.loss_of(pod) or (self._silence_of(pod) if by_others else "")

    def _silence_of(self, pod: Object) -> str:
        """Return that nothing is heard of the machine of a pod that may run."""
        name = pod["spec"].get("nodeName", "")
        machine = self._machine(name)
        is_over = pod.get("status", {}).get("phase") in FINAL_PHASES
        if not name or is_over or (machine and machine.ready):
            return ""
        return f"its machine {name} is {'not ready' if machine else 'not there any more'}"
