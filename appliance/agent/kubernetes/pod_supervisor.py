"""The supervisor of pods: it brings them to the wanted state and knows where each one stands, as that of Docker does.

The cluster is the only memory: what is known here is a copy of its pods and nodes. A pod that the cluster's scheduler
has no machine for is taken back before the launch of it is answered: sessions wait in Penstock's own queue, where they
are told why, and never in the cluster's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from ipaddress import IPv4Address
from weakref import WeakValueDictionary

import structlog

from appliance.agent import admission
from appliance.agent.kubernetes import cluster_info, cluster_pods, disruptions, namespace_check, pods, pools
from appliance.agent.kubernetes.capacity import (
    FINAL_PHASES,
    Amount,
    Capacity,
    Machine,
    Object,
    machine_of,
    measure,
)
from appliance.agent.kubernetes.client import Client, ClusterAwayError
from appliance.agent.kubernetes.cluster_pods import Pod
from appliance.agent.kubernetes.growth import Growth
from appliance.agent.kubernetes.mirror import Mirror
from appliance.agent.kubernetes.pod_losses import PodLosses
from appliance.agent.kubernetes.pod_ports import PodPorts
from appliance.agent.kubernetes.pod_settings import PodSettings
from appliance.agent.labels import digest_of, name_of
from common.errors import ConflictError, InputError, NotFoundError, PenstockError, UnavailableError
from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, NodeInfo

log = structlog.get_logger()

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
VERSION = "/version"
_GATHER_S = 0.2
"""What others' pods do is summed up no more often than this."""
_LOOK_S = 0.5
_GROWTH_S = 2.0
_REMOVAL_S = 20.0
"""Longer than the grace that a pod has to end, and shorter than the control API waits for an answer."""


class PodSupervisor:
    """All sessions' pods of a cluster. `changed` is set whenever one of them, or what the cluster has, changes."""

    def __init__(
        self,
        client: Client,
        pod_settings: PodSettings,
        base: NodeInfo,
        pod_ports: PodPorts,
        hosts: Callable[[], Mapping[str, IPv4Address]] = dict,
    ) -> None:
        """Start with nothing known. `base` is what the node tells without what the cluster has, `hosts` tells names
        that pods know.
        """
        self.changed = asyncio.Event()
        self._client = client
        self._pod_settings = pod_settings
        self._base = base
        self._pod_ports = pod_ports
        self._hosts = hosts
        self._nodes: Mirror[Machine] = Mirror(
            client, NODES, self._keep_node, self._touch, selector=pod_settings.selector
        )
        self._pods: Mirror[Pod] = Mirror(client, PODS, self._keep_pod, self._touch, gone=self._note_gone)
        self._losses = PodLosses(self._machine)
        self._growth = Growth(pod_settings)
        self._touched = asyncio.Event()
        self._moved = asyncio.Condition()
        self._capacity: Capacity = measure([], [])
        self._node_info = base
        self._states: list[ContainerState] = []
        self._launching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def node_info(self) -> NodeInfo:
        """Return what the cluster has for sessions."""
        return self._node_info

    def states(self) -> list[ContainerState]:
        """Return the state of every pod of ours that has a machine, oldest first."""
        return self._states

    async def launch(self, spec: ContainerSpec) -> ContainerState:
        """Run the pod of `spec` unless it is there already; return its state when it has a machine.

        Raises InputError for what the cluster can never run, ConflictError where it has no room now or the id belongs
        to another spec, UnavailableError where it does not answer.
        """
        # one id is launched once at a time, so that nobody takes back what another has just been told of
        async with self._launching.setdefault(spec.id, asyncio.Lock()):
            pod = self._find(spec.id) or await self._create(spec)
            self._check_same(spec, pod)
            return self._told(await self._placed(pod))

    async def resize(self, identity: str, gpu_shares: Sequence[GpuShare]) -> ContainerState:
        """Refuse: a pod keeps the GPUs that it has; raises InputError, NotFoundError for an unknown container."""
        state = self._losses.state_of(self._known(identity))
        if state.gpus == list(gpu_shares):
            return state
        raise InputError(
            "Kubernetes gives whole GPUs only, so shares on a cluster of it do not change",
            where="gpus",
            hint="submit the session again with other GPUs",
        )

    async def remove(self, identity: str, grace_s: int) -> None:
        """Stop and delete a pod, and wait until nothing of it runs; no error where there is none.

        Raises UnavailableError. One that the cluster has given up with its machine is deleted by force: nobody is there
        who would end it. Whoever holds the object of a pod that has ended, by a finalizer, is not waited for.
        """
        known = self._find(identity)
        given_up = known is not None and self._losses.is_given_up(known)
        if known is not None:
            self._losses.remove(known)
        await self._client.delete(self._path(identity), 0 if given_up else grace_s)
        deadline = time.monotonic() + grace_s + _REMOVAL_S
        while (pod := await self._read(identity)) is not None:
            if disruptions.has_ended(pod) or (given_up and disruptions.is_leaving(pod)):
                self._losses.let_go(pod)
                self._pods.take(pod)
                break
            if time.monotonic() > deadline:
                machine = pod["spec"].get("nodeName", "no machine")
                raise UnavailableError(
                    f"the cluster does not finish deleting {pod['metadata']['name']} on {machine}",
                    where="Kubernetes",
                    hint=f"look at {machine}; where it is lost for good, delete the pod by force",
                )
            await self._wait(_LOOK_S)
        self._losses.vanished.pop(identity, None)
        self._measure()

    async def logs(self, identity: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        """Return the log of a container, with `follow` as it grows; raises NotFoundError where there is none."""
        query: dict[str, str | int] = {"container": pods.CONTAINER, "follow": str(follow).lower()}
        query |= {} if tail is None else {"tailLines": tail}
        chunks = self._chunks(f"{self._path(identity)}/log", query)
        try:
            # what comes first is nothing: it only shows that the cluster has the log
            await anext(chunks)
        except InputError as error:
            # so a cluster refuses the log of a container that has not started
            raise NotFoundError(error.problems[0].reason, where="id", hint="wait until it runs") from error
        return chunks

    async def watch(self) -> None:
        """Follow the cluster, for ever; its being away is waited out."""
        works = (self._nodes.run(), self._pods.run(), self._sum_up(), self._look_at_growth())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def rebuild(self) -> None:
        """Learn what the cluster has and runs, and take back what an agent before left without a machine.

        Raises PenstockError where the cluster does not answer.
        """
        told = await self._client.get(VERSION)
        self._base = self._base.model_copy(update={"engine_version": f"Kubernetes {told['gitVersion']}"})
        await namespace_check.warn_of_open(self._client, self._pod_settings)
        await self._nodes.load()
        await self._pods.load()
        for pod in self._own():
            # nobody waits for it any more, and the cluster would give it a machine some day
            waits = self._growth.expect(pod, self._nodes.items.values())
            if not waits and not pods.is_placed(pod) and not disruptions.is_leaving(pod):
                await self._take_back(pods.id_of(pod))
        await self._pod_ports.follow(self._own())
        self._measure()

    async def close(self) -> None:
        """Let go of the cluster; its pods go on."""
        await self._pod_ports.close()
        await self._client.close()

    async def _take_back(self, identity: str) -> None:
        """Have a pod deleted; the agent comes up with one that stays, too, and waits for none."""
        try:
            await self._client.delete(self._path(identity), 0)
        except ClusterAwayError:
            raise
        except PenstockError as error:
            log.warning("a pod without a machine cannot be taken back", id=identity, reason=str(error))

    async def _chunks(self, path: str, query: Mapping[str, str | int]) -> AsyncIterator[bytes]:
        async with self._client.stream(path, query) as response:
            yield b""
            async for chunk in response.aiter_raw():
                yield chunk

    async def _create(self, spec: ContainerSpec) -> Object:
        pods.check(spec, self._pod_settings)
        machine = self._machine_for(spec)
        admission.check(spec, {device.uuid: device for device in self._capacity.devices}, self._all_states())
        made = pods.manifest(spec, self._pod_settings, machine, self._hosts())
        try:
            pod = await self._client.create(self._client.pods, made)
        except ConflictError:
            # made by a launch whose answer was lost, or not the same; a quota leaves none
            if (existing := await self._read(spec.id)) is None:
                raise
            return existing
        log.info("container is launched", id=spec.id, image=spec.image)
        self._pods.put(pod)
        if self._find(spec.id) is None:
            await self._client.delete(self._path(spec.id), 0)
            raise InputError(
                "the cluster has changed what Penstock wrote into its pod, and would not know it again",
                where="Kubernetes",
                hint="let the administrator exempt labels and annotations of io.penstock from the cluster's webhooks",
            )
        return pod

    def _machine_for(self, spec: ContainerSpec) -> str:
        """Return the machine that has the places of a spec; raises InputError for what no machine can hold."""
        largest, asked = self._capacity.largest, Amount(spec.cpu_milli, spec.memory_mib, len(spec.gpus))
        if asked | largest != largest:
            wanted, most = cluster_info.words(asked), cluster_info.words(largest)
            raise InputError(
                f"one container asks for {wanted}, and its machines have at most {most}",
                where="gpus",
                hint="ask for at most that in a container",
            )
        machines = {self._capacity.home[share.uuid] for share in spec.gpus if share.uuid in self._capacity.home}
        if len(machines) > 1:
            raise ConflictError(
                f"its {len(spec.gpus)} GPUs lie on {len(machines)} machines of the cluster, and a container has one",
                where="gpus",
                hint="ask for fewer GPUs in a container",
            )
        return machines.pop() if machines else ""

    def _check_same(self, spec: ContainerSpec, pod: Object) -> None:
        if pods.digest_label(pod) != digest_of(spec):
            raise ConflictError(
                f"container {spec.id} was launched from another specification",
                where="id",
                hint="use a new id for a new container",
            )
        if pod["metadata"].get("deletionTimestamp") and pod.get("status", {}).get("phase") not in FINAL_PHASES:
            raise ConflictError(f"container {spec.id} is being deleted", where="id", hint="wait until it is gone")

    async def _placed(self, pod: Object) -> Object:
        """Wait until a pod has a machine and return it; one that finds none is taken back. Raises ConflictError."""
        identity, deadline = pods.id_of(pod), time.monotonic() + self._pod_settings.schedule_s
        while not pods.is_placed(pod):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await self._wait(min(left, _LOOK_S))
            pod = self._find(identity) or pod
        # the watch may be late
        if not pods.is_placed(pod):
            pod = await self._read(identity) or pod
        if pods.is_placed(pod) or self._growth.expect(pod, self._nodes.items.values()):
            return pod
        await self.remove(identity, 0)
        reason = pods.why_unplaced(pod) or f"its scheduler has said nothing for {self._pod_settings.schedule_s:g} s"
        raise ConflictError(
            f"the cluster has no machine for it now: {reason}", where="Kubernetes", hint="look at its nodes and pods"
        )

    async def _read(self, identity: str) -> Object | None:
        """Return a pod as the cluster has it now; None where it is gone, which is noted."""
        try:
            pod = await self._client.get(self._path(identity))
        except NotFoundError:
            for uid, kept in list(self._pods.items.items()):
                if kept.own is not None and pods.id_of(kept.own) == identity:
                    self._pods.drop(uid)
            self._measure()
            return None
        return pod

    async def _wait(self, limit_s: float) -> None:
        """Wait for any news, no longer than the limit."""
        async with self._moved:
            try:
                await asyncio.wait_for(self._moved.wait(), limit_s)
            except TimeoutError:
                return

    def _path(self, identity: str) -> str:
        return f"{self._client.pods}/{name_of(identity)}"

    def _find(self, identity: str) -> Object | None:
        own = (pod.own for pod in self._pods.items.values() if pod.own is not None)
        return next((pod for pod in own if pods.id_of(pod) == identity), None)

    def _known(self, identity: str) -> Object:
        if (pod := self._find(identity)) is None:
            raise NotFoundError(f"there is no container {identity}", where="id", hint="list the node's containers")
        return pod

    def _told(self, pod: Object) -> ContainerState:
        return self._growth.dress(pod, self._losses.state_of(pod))

    async def _look_at_growth(self) -> None:
        """Let time pass for pods that wait for a machine: nobody tells of it."""
        while True:
            await asyncio.sleep(_GROWTH_S)
            if self._growth.is_awaited():
                self._touch()

    def _machine(self, name: str) -> Machine | None:
        return next((machine for machine in self._nodes.items.values() if machine.name == name), None)

    def _keep_node(self, node: Object) -> Machine:
        return machine_of(node, self._pod_settings.resource, self._pod_settings.tolerations)

    def _keep_pod(self, pod: Object) -> Pod | None:
        ours = cluster_pods.is_ours(pod, self._client.namespace, self._pod_settings.node)
        return cluster_pods.read(pod, self._pod_settings.resource, ours=ours and not self._losses.is_let_go(pod))

    def _note_gone(self, pod: Pod) -> None:
        if pod.own is not None:
            self._losses.note_gone(pod.own)

    def _touch(self) -> None:
        self._touched.set()

    async def _sum_up(self) -> None:
        """Take up what the copies were told, together."""
        while True:
            await self._touched.wait()
            self._touched.clear()
            try:
                # whoever learns that a pod runs learns its ports too
                await self._pod_ports.follow(self._own())
                self._measure()
            except Exception as error:
                # whatever it was: without this task the control API would be told what was for ever
                log.exception("what the cluster says cannot be summed up", reason=str(error))
            async with self._moved:
                self._moved.notify_all()
            await asyncio.sleep(_GATHER_S)

    def _measure(self) -> None:
        occupants = [occupant for pod in self._pods.items.values() for occupant in pod.occupants]
        capacity = measure(*pools.spread([*self._nodes.items.values()], occupants, self._pod_settings.pools))
        if capacity.left_out and capacity.left_out != self._capacity.left_out:
            log.warning("the cluster has more GPUs than one node may have", left_out=capacity.left_out)
        self._capacity = capacity
        node_info = cluster_info.describe(self._base, capacity, [*self._nodes.items.values()])
        self._growth.keep(self._own())
        told = [pod for pod in self._own() if pods.is_placed(pod) or self._growth.waits(pod)]
        states = [self._pod_ports.dress(self._told(pod)) for pod in told]
        states += self._losses.vanished.values()
        if (node_info, states) != (self._node_info, self._states):
            self._node_info, self._states = node_info, states
            self.changed.set()

    def _own(self) -> list[Object]:
        own = [pod.own for pod in self._pods.items.values() if pod.own is not None]
        return sorted(own, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def _all_states(self) -> list[ContainerState]:
        return [self._losses.state_of(pod) for pod in self._own()]
