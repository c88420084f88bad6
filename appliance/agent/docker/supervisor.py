"""The supervisor of containers: it brings them to the wanted state and knows where each one stands.

Docker is the only memory: what is known here is rebuilt from it at every start, whenever the stream of events was cut,
and from time to time, as an event may be lost. Only a container that does not exist in Docker (its image is on its way,
or could not be pulled) is known from the launch alone; after a restart the same launch asked for again ends the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import anyio
import structlog

from appliance.agent import admission
from appliance.agent.docker import containers, cores, inspections, interruptions
from appliance.agent.docker.blocking_calls import in_thread, items_in_thread
from appliance.agent.docker.cores import CoreGrant
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.engine_calls import EngineAwayError, ImageMissingError
from appliance.agent.docker.gang_network_manager import GangNetworkManager
from appliance.agent.docker.images import Images, not_here
from appliance.agent.docker.inspections import Inspection
from appliance.agent.docker.known_container import KnownContainer, is_collective
from appliance.agent.docker.known_containers import KnownContainers
from appliance.agent.docker.leases import GRACE_S, Leases, MissingLeaseError
from appliance.agent.docker.lifecycle import Lifecycle
from appliance.agent.docker.mount_checks import MountChecks
from appliance.agent.labels import LABEL_ID, digest_of
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.shares.share_manager import ShareManager
from appliance.agent.supervision import Background
from common.errors import ConflictError, NotFoundError, PenstockError, UnavailableError
from common.gpu.share import GpuShare
from common.lease_protocol import LEASE_ENDED
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, GangNetwork, Pull

log = structlog.get_logger()

R = TypeVar("R")

MAX_FOLLOWERS = 200
_RECONNECT_S = 1.0
END_GRACE_S = 2
"""Seconds that a container has to end by itself when it goes beyond what it was given."""


class Supervisor:
    """All containers of this node. `changed` is set whenever one of them changes."""

    def __init__(
        self,
        engine: DockerEngine,
        images: Images,
        forwarder: PortForwarder,
        *,
        shares: ShareManager,
        gang_networks: GangNetworkManager,
        egress_policy: EgressPolicy,
        near: Mapping[str, frozenset[int]],
        node_cores: Sequence[int],
        mount_checks: MountChecks,
        leases: Leases,
    ) -> None:
        """Start with nothing known; `watch` fills it in. `node_cores` are the cores that containers may use, `near`
        those of each GPU's NUMA node.
        """
        self._engine = engine
        self._images = images
        self._forwarder = forwarder
        self._shares = shares
        self._gang_networks = gang_networks
        self._egress_policy = egress_policy
        self._near = near
        self._cores = node_cores
        self._mount_checks = mount_checks
        self._leases = leases
        self._was_away = False
        self._lifecycle = Lifecycle(engine, shares, gang_networks, egress_policy, leases)
        self._background = Background()
        self._known = KnownContainers(engine, forwarder, shares, self._lifecycle, self._background)
        self.changed = self._known.changed
        self._rebuilding = asyncio.Lock()
        self._watchers = anyio.CapacityLimiter(1)
        self._followers = anyio.CapacityLimiter(MAX_FOLLOWERS)

    def states(self) -> list[ContainerState]:
        """Return the state of every container, oldest first."""
        return [known.state for known in self._known.values()]

    async def launch(self, spec: ContainerSpec) -> ContainerState:
        """Run the container of `spec` unless it is known already; return its state.

        Returns at once with `pulling` where the image must be pulled. Raises ConflictError where the id belongs to
        another spec, the node is full or cannot keep sessions apart, InputError where the node must not run the spec.
        """
        digest = digest_of(spec)
        if spec.id not in self._known:
            await self._leases.wait(spec.lease)
            await self._mount_checks.admit(spec)
        # no other launch may come between the check and the entry
        if known := self._known.get(spec.id):
            if known.digest != digest:
                raise ConflictError(
                    f"container {spec.id} was launched from another specification",
                    where="id",
                    hint="use a new id for a new container",
                )
            return known.state
        self._egress_policy.check()
        containers.check(spec, self._shares.devices, self.states())
        self._shares.check(spec.gpus)
        granted = self._choose_cores(spec)
        state = ContainerState(id=spec.id, session_id=spec.session_id, status=ContainerStatus.CREATING, gpus=spec.gpus)
        known = KnownContainer(
            digest, state, granted=granted, disk_mib=spec.disk_mib, ports=spec.ports, lease=spec.lease, launching=True
        )
        self._known.add(spec.id, known)
        known.collective = is_collective(spec.gpus, spec.network)
        log.info("container is launched", id=spec.id, image=spec.image)
        async with known.lock:
            try:
                await self._create_and_start(spec, known)
            except ImageMissingError:
                if spec.pull is Pull.NEVER:
                    self._known.fail(known, not_here(spec.image))
                else:
                    self._known.set(known, state.model_copy(update={"status": ContainerStatus.PULLING}))
                    self._background.begin(self._pull_and_start(spec, known))
        return known.state

    async def resize(self, identity: str, gpu_shares: Sequence[GpuShare]) -> ContainerState:
        """Give a running container other shares of the GPUs that it has; return its state.

        Raises NotFoundError for an unknown container, ConflictError where it does not run or a GPU has no room,
        InputError where the shares cannot change so.
        """
        if (known := self._known.get(identity)) is None:
            raise NotFoundError(f"there is no container {identity}", where="id", hint="list the node's containers")
        async with known.lock:
            admission.check_runs(known.state)
            self._shares.check_change(known.state, gpu_shares)
            _, pid = inspections.process_of(await in_thread(self._engine.inspect, identity))
            # it may have ended while Docker was asked
            admission.check_runs(known.state, pid)
            # no other change or launch may come between the check and the entry
            others = [state for state in self.states() if state.id != identity]
            admission.check_fit(gpu_shares, self._shares.devices, others)
            before = self._shares.set_shares(identity, gpu_shares)
            self._known.set(known, known.state)
            try:
                await in_thread(self._shares.change, identity, pid)
            except PenstockError:
                with contextlib.suppress(PenstockError):
                    self._shares.set_shares(identity, before)
                    self._known.set(known, known.state)
                    await in_thread(self._shares.change, identity, pid)
                raise
        return known.state

    async def end(self, identity: str, reason: str, grace_s: int = END_GRACE_S) -> None:
        """Stop a container that goes beyond what it was given; its state tells the reason. Raises PenstockError."""
        log.warning("container is stopped", id=identity, reason=reason)
        # before the stop: its end may be told at any time from then on
        if known := self._known.get(identity):
            known.end_reason = reason
        try:
            await self._lifecycle.stop(identity, grace_s)
        except PenstockError:
            # it goes on, and may come to an end that has nothing to do with this
            if known:
                known.end_reason = ""
            raise

    async def withdraw(self, lease: str) -> None:
        """End the containers of a lease that has ended; raises PenstockError."""
        ended = [known for known in self._known.values() if known.lease == lease and not known.state.status.is_final]
        await asyncio.gather(*map(self._withdraw, ended))

    def leases(self) -> set[str]:
        """Return the leases of containers that have not ended."""
        return {known.lease for known in self._known.values() if known.lease and not known.state.status.is_final}

    def tell(self) -> None:
        """Take up what has changed about the shares of containers, such as a warning."""
        for known in list(self._known.values()):
            self._known.set(known, known.state)

    def disk_limits(self) -> dict[str, int]:
        """Return how many MiB those containers may write that run and have a limit."""
        running = (known for known in self._known.values() if known.state.status is ContainerStatus.RUNNING)
        return {known.state.id: known.disk_mib for known in running if known.disk_mib}

    def running(self) -> dict[str, str]:
        """Return the containers that run, and the session of each."""
        return {each.id: each.session_id for each in self.states() if each.status is ContainerStatus.RUNNING}

    async def remove(self, identity: str, grace_s: int) -> None:
        """Stop and remove a container; no error where there is none."""
        if (known := self._known.get(identity)) is None and inspections.is_id_of_strange(identity):
            return
        async with known.lock if known else contextlib.nullcontext():
            await self._lifecycle.remove(identity, grace_s)
            await self._forwarder.close(identity)
            if self._known.drop(identity):
                log.info("container is removed", id=identity)
                self.changed.set()
        await self._known.switch_kinds()

    async def logs(self, identity: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        """Return the log of a container, with `follow` as it grows; raises NotFoundError where Docker has none."""
        stream = await in_thread(partial(self._engine.logs, identity, follow=follow, tail=tail))
        # followers wait for long: they must not keep the log of an ended container, which is read before its removal
        return items_in_thread(stream, self._followers if follow else None)

    async def watch(self) -> None:
        """Learn all containers from Docker and follow its events, for ever; Docker being away is waited out."""
        while True:
            try:
                # events first: what happens while the containers are listed is not lost
                stream = await in_thread(self._engine.events)
                async with aclosing(items_in_thread(stream, self._watchers)) as events:
                    await self.rebuild()
                    self._was_away = False
                    async for event in events:
                        await self._follow(event)
                log.warning("Docker ended its stream of events")
            except PenstockError as error:
                log.warning("Docker is away; containers go on", reason=str(error))
            except Exception as error:
                # whatever it was: without this task no container's end would be noticed any more
                log.exception("the events of Docker cannot be followed", reason=str(error))
            self._was_away = True
            await asyncio.sleep(_RECONNECT_S)

    async def rebuild(self) -> None:
        """Learn the state of every container from Docker, and start those that were created and never started."""
        async with self._rebuilding:
            settled = {key for key, known in self._known.items() if not known.launching}
            stale = {key for key in settled if not self._known[key].nowhere}
            networks: dict[str, GangNetwork] = {}
            for inspection in await in_thread(self._engine.inspect_all):
                identity = inspections.identity_of(inspection)
                stale.discard(identity)
                now = self._known.get(identity)
                if (now is None or not now.launching) and (now is None) == (identity in settled):
                    # removed or started since Docker told of it, which is what it was before
                    continue
                try:
                    network = inspections.network_of(inspection)
                    if network:
                        networks[identity] = network
                    await self._take_up(identity, inspection, network)
                except EngineAwayError:
                    raise
                except Exception as error:
                    # whatever it was: the others are taken up all the same, and the agent comes up
                    log.exception("a container is not taken up", id=identity, reason=str(error))
            for gone in stale:
                self._known.forget(gone)
            await in_thread(self._gang_networks.recover, networks, self._known.__contains__)
            await in_thread(self._shares.sweep, self._known.is_live)
            await in_thread(self._engine.mount_points.sweep, self._known.is_to_start)
            await self._known.switch_kinds()
            await in_thread(self._shares.tidy)
            self.changed.set()

    async def close(self) -> None:
        """Close the ports and let go of what is under way; containers go on."""
        await self._background.close()
        await self._known.close()
        await self._images.close()
        await self._forwarder.close_all()

    def _choose_cores(self, spec: ContainerSpec) -> CoreGrant:
        held = [known.granted for known in self._known.values() if not known.state.status.is_final]
        near = frozenset[int]().union(*(self._near.get(share.uuid, ()) for share in spec.gpus))
        return cores.choose(spec.cpu_milli, self._cores, held, near)

    async def _take_up(self, identity: str, inspection: Inspection, network: GangNetwork | None) -> None:
        values = inspections.label_values(inspection)
        state = interruptions.by_boot(inspections.state_of(inspection), values.boot, self._engine.boot)
        known, strange = self._known.get(identity), inspections.is_strange(inspection)
        if known:
            state = await self._judged(known, state)
        if not strange and not state.status.is_final:
            self._shares.adopt(identity, values.kind, state.gpus)
        if known is None:
            known = self._known.add(identity, KnownContainer.of(inspection, state))
        if strange:
            self._known.set(known, state)
        elif known.launching:
            known.overtaken = True
        else:
            await self._adopt(known, state, network)

    async def _adopt(self, known: KnownContainer, state: ContainerState, network: GangNetwork | None) -> None:
        self._known.set(known, known.seen(state))
        if state.status is known.state.status is ContainerStatus.CREATING and self._leases.is_held(known.lease):
            async with known.lock:
                self._known.set(known, await self._lifecycle.start(state.id, network))
        await self._hold(known.state, new=state.status is ContainerStatus.CREATING)
        self._known.set(known, known.state)
        await self._known.offer(known)

    async def _create_and_start(self, spec: ContainerSpec, known: KnownContainer) -> None:
        try:
            await self._mount_checks.require_storages(spec)
            await self._lifecycle.create(spec, known.granted)
            state = await self._lifecycle.start(spec.id, spec.network)
            await self._hold(state, new=True)
            # whoever learns that it runs learns its ports too
            await self._known.offer(known, state)
            await self._known.read_to_its_end(known, state)
            self._known.set(known, state)
            known.launching = False
            if known.overtaken:
                await self._refresh(spec.id)
        except ImageMissingError:
            raise
        except EngineAwayError:
            # whether the container exists is told by Docker when it is back
            self._known.forget(spec.id)
            raise
        except PenstockError as error:
            self._known.fail(known, error)
        except Exception as error:
            # whatever it was: it must not look as if it were on its way for ever
            log.exception("a container cannot be started", id=spec.id, reason=str(error))
            self._known.fail(known, UnavailableError("the agent failed", where="agent", hint="see the agent's journal"))

    async def _hold(self, state: ContainerState, *, new: bool) -> None:
        if reason := await self._lifecycle.hold(state, new=new):
            await self.end(state.id, reason)

    async def _withdraw(self, known: KnownContainer) -> None:
        # a launch that is under way comes to its end before
        async with known.lock:
            if known.state.status is ContainerStatus.RUNNING:
                await self.end(known.state.id, LEASE_ENDED, GRACE_S)
            elif not known.state.status.is_final:
                self._known.fail(known, MissingLeaseError(f"{LEASE_ENDED} before it ran"))

    async def _pull_and_start(self, spec: ContainerSpec, known: KnownContainer) -> None:
        try:
            await self._images.wait(spec.image)
            async with known.lock:
                if self._known.get(spec.id) is known:
                    await self._create_and_start(spec, known)
        except PenstockError as error:
            self._known.fail(known, error)

    async def _follow(self, event: Mapping[str, Any]) -> None:
        identity = event["Actor"]["Attributes"][LABEL_ID]
        known = self._known.get(identity)
        if known is not None and known.launching:
            known.overtaken = known.overtaken or event["Action"] != "start"
        else:
            await self._refresh(identity)

    async def _refresh(self, identity: str) -> None:
        known = self._known.get(identity)
        if known is None:
            return
        try:
            state = await self._judged(known, await in_thread(self._engine.state, identity))
            self._known.see(known, state)
        except NotFoundError:
            # somebody removed it behind our back; a removal of ours has forgotten it already, or will
            if self._known.get(identity) is known:
                self._known.forget(identity)
                self._background.begin(self._known.release(identity))
                self._background.begin(self._lifecycle.leave(identity))
                self.changed.set()

    async def _judged(self, known: KnownContainer, state: ContainerState) -> ContainerState:
        """Return the state in which a container is found now, ended by its engine where that ended meanwhile."""
        if known.state.status.is_final or not interruptions.is_forced(state):
            return state
        goes_on = not self._was_away and await in_thread(self._engine.goes_on)
        return state if goes_on else interruptions.by_engine(state)
