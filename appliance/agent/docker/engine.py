"""Docker, seen by the agent: every call blocks, so callers run it in a thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import docker
import requests
import structlog
from docker.constants import DEFAULT_TIMEOUT_SECONDS
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from appliance.agent.docker import (
    api_version,
    containers,
    cores,
    deleted_files,
    disk,
    gang_network,
    inspections,
    resolvers,
)
from appliance.agent.docker.containers import ContainerLimits
from appliance.agent.docker.cores import CoreGrant
from appliance.agent.docker.engine_calls import Closable, ImageMissingError, translated
from appliance.agent.docker.engine_run import EngineRun
from appliance.agent.docker.inspections import Inspection
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.docker.refusals import reason_of, told
from appliance.agent.labels import LABEL_ID, check_image, digest_of, name_of
from appliance.agent.sandbox import confinement, oci_runtime
from appliance.agent.shares.share_manager import PreparedShares
from appliance.gpu.devices import Needs
from common.errors import ConflictError, InputError, UnavailableError
from common.image_references import full, repository_of
from common.protocol import ContainerSpec, ContainerState, ContainerStatus

log = structlog.get_logger()

P = ParamSpec("P")
R = TypeVar("R")
Item_co = TypeVar("Item_co", covariant=True)

_EVENTS = ["start", "die", "destroy", "pause", "unpause"]
_REMOVAL_S = 30.0
_ANSWER_S = 5
_HAS_NONE = ("manifest unknown", "name unknown", "not found")
"""What registries say of an image that they do not have."""


@dataclass(frozen=True)
class Image:
    """An image of this node: its digest at the registry, or its id where it comes from none; its size in bytes, and the
    names of its labels.
    """

    digest: str
    size: int
    labels: Collection[str] = ()


class DockerEngine:
    """The Docker Engine of this node, limited to the containers that carry our label."""

    def __init__(
        self,
        socket: Path,
        mount_points: MountPoints,
        limits: ContainerLimits,
        listener: Path,
        shown: Path,
        *,
        hosts: Callable[[], Mapping[str, IPv4Address]],
        site_files: Callable[[], Mapping[str, Path]],
        rdma: Callable[[], Needs] = Needs,
        boot: str = "",
    ) -> None:
        """Prepare for calls over `socket`; nothing is called yet. What sessions mount is held at `mount_points`.

        At `listener` sandboxes ask about what they deny; below `shown` is what containers see of their cores, and
        `hosts` tells names that they know, `site_files` what they see of their site, by where, and `rdma` what those
        need that get HCAs. `boot` tells this run of the machine from the others.
        """
        self.boot = boot
        self.socket = socket
        self.mount_points = mount_points
        self._limits = limits
        self._listener = listener
        self._shown = shown
        self._hosts = hosts
        self._site_files = site_files
        self._rdma = rdma
        self._api = self._speaking(containers.OLDEST_API)
        self._run: EngineRun | None = None

    @property
    def api_version(self) -> str:
        """The version of Docker's API that is spoken."""
        return str(self._api.api_version)

    @translated
    def negotiate(self) -> None:
        """Speak the newest version of Docker's API that both sides know; raises UnavailableError without one."""
        version = api_version.choose(self._api.version(api_version=False))
        if version != self.api_version:
            log.info("Docker's API", version=version, before=self.api_version)
            self._api = self._speaking(version)

    def goes_on(self) -> bool:
        """Return whether the engine that tells events goes on: it takes new calls, and no other one took its place.

        While an engine ends it takes none, and goes on with those that it has.
        """
        try:
            client = self._speaking(self.api_version, _ANSWER_S)
            with contextlib.closing(client):
                client.ping()
        except (DockerException, requests.RequestException):
            return False
        # asked last: another one answers only when the one before has ended
        return self._run is None or not self._run.is_over()

    @translated
    def info(self) -> dict[str, Any]:
        """Return Docker's description of itself and its machine."""
        return self._api.info()

    @translated
    def inspect_all(self) -> list[Inspection]:
        """Return the inspections of all our containers, the stopped ones too.

        Ours have the label of a session or the name that goes with their id; others, with an image's, are left alone.
        """
        listed = self._api.containers(all=True, filters={"label": LABEL_ID})
        ours = (entry for entry in listed if inspections.is_listed_as_ours(entry))
        found = (self._inspect_or_none(entry["Id"]) for entry in ours)
        return [inspection for inspection in found if inspection is not None]

    @translated
    def state(self, identity: str) -> ContainerState:
        """Return the state of one container; raises NotFoundError."""
        return inspections.state_of(self._api.inspect_container(name_of(identity)))

    @translated
    def inspect(self, identity: str) -> Inspection:
        """Return the inspection of one container; raises NotFoundError."""
        return cast("Inspection", self._api.inspect_container(name_of(identity)))

    @translated
    def written_mib(self, identity: str) -> int:
        """Return how many MiB a container has written beside its mounts; raises NotFoundError. It may take long."""
        inspection = self.inspect(identity)
        if places := inspections.written_places(inspection):
            return disk.used_mib(places) + self._deleted_mib(inspection, places[0])
        listed = self._api.containers(all=True, size=True, filters={"id": inspection["Id"]})
        return sum(int(found.get("SizeRw", 0)) for found in listed) >> 20

    @translated
    def create(self, spec: ContainerSpec, granted: CoreGrant, part: PreparedShares, cgroup: str = "") -> None:
        """Create a container without starting it; one that was made from the same spec before is fine.

        A folder to mount that is not there yet is made; `part` is what its GPU shares need, and it runs below `cgroup`.
        Raises ImageMissingError where the image must be pulled first, InputError for a sandbox that this node cannot
        hold and for an image that has labels of ours.
        """
        image = self.image(spec.image)
        if image is None:
            raise _missing(spec.image)
        check_image(spec.image, image.labels)
        confined = confinement.confinement_of(spec, self._listener)
        if confined and oci_runtime.NAME not in self._api.info()["Runtimes"]:
            raise InputError(
                "this node's container engine has no runtime that holds sandboxes",
                where="sandbox",
                hint="deploy the node again, or take the sandbox from the session's project, image or site",
            )
        sources = self.mount_points.hold(spec.id, [Path(mount.source) for mount in spec.mounts])
        try:
            arguments = containers.creation(
                spec,
                granted,
                sources,
                self._limits,
                needs=part.needs,
                rdma=self._rdma() if spec.rdma else Needs(),
                kind=part.kind,
                confinement=confined,
                shown={**cores.draw(granted, self._shown), **self._site_files()},
                hosts=self._hosts(),
                servers=resolvers.of_node(),
                boot=self.boot,
                cgroup=cgroup,
            )
            self._api.create_container(**arguments)
        except ImageNotFound as error:
            # it went since
            self.mount_points.release(spec.id)
            raise _missing(spec.image) from error
        except APIError as error:
            existing = self._inspect_or_none(name_of(spec.id)) if error.status_code == 409 else None
            if existing is None or inspections.label_values(existing).digest != digest_of(spec):
                self.mount_points.release(spec.id)
                raise

    @translated
    def start(self, identity: str) -> ContainerState:
        """Start a container and return its state, which is `failed` with a reason where Docker refuses."""
        try:
            self._api.start(name_of(identity))
        except APIError as error:
            self.mount_points.release(identity)
            log.warning("a container is not started", id=identity, reason=reason_of(error))
            failed = {"status": ContainerStatus.FAILED, "error": told(reason_of(error))}
            return self.state(identity).model_copy(update=failed)
        # it has mounts of its own from now on
        self.mount_points.release(identity)
        return self.state(identity)

    @translated
    def stop(self, identity: str, grace_s: int) -> None:
        """Stop a container (SIGTERM, after `grace_s` seconds SIGKILL) and keep it; no error where it is gone."""
        with contextlib.suppress(NotFound):
            self._api.stop(name_of(identity), timeout=grace_s)

    @translated
    def image(self, reference: str) -> Image | None:
        """Return an image that is on this node under this name; None where none is, as where the name is like an id."""
        try:
            found: dict[str, Any] = self._api.inspect_image(reference)  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None
        pinned = found.get("RepoDigests") or []
        if full(reference) not in map(full, [*(found.get("RepoTags") or []), *pinned]):
            return None
        own = (name for name in pinned if repository_of(name) == repository_of(reference))
        digest = next((name.partition("@")[2] for name in own), str(found["Id"]))
        return Image(digest, int(found["Size"]), (found.get("Config") or {}).get("Labels") or {})

    @translated
    def pull(self, image: str, progress: Callable[[int, int], None]) -> None:
        """Pull an image; `progress` is told the bytes that have come and those that are known to come.

        Raises UnavailableError. What Docker says of it goes into the log and no further: it may speak of addresses that
        only this node reaches.
        """
        layers: dict[str, tuple[int, int]] = {}
        try:
            lines: Iterable[dict[str, Any]] = self._api.pull(image, stream=True, decode=True)
            error = ""
            for line in lines:
                error = error or line.get("error", "")
                if line.get("status") == "Downloading" and (detail := line.get("progressDetail")):
                    layers[line["id"]] = detail.get("current", 0), detail.get("total", 0)
                elif line.get("status") == "Download complete" and line["id"] in layers:
                    layers[line["id"]] = (layers[line["id"]][1],) * 2
                progress(sum(come for come, _ in layers.values()), sum(total for _, total in layers.values()))
        except APIError as refused:
            error = reason_of(refused)
        if error:
            log.warning("an image cannot be pulled", image=image, reason=error)
            has_none = any(words in error for words in _HAS_NONE)
            raise UnavailableError(
                f"image {image} cannot be pulled: its registry does not {'have' if has_none else 'deliver'} it",
                where="image",
                hint="check its name; the journal of the node's agent has the details",
            )

    @translated
    def remove(self, identity: str, grace_s: int) -> None:
        """Stop a container (SIGTERM, after `grace_s` seconds SIGKILL) and remove it; no error where it is gone."""
        name = inspections.name_to_remove(identity)
        try:
            self._api.stop(name, timeout=grace_s)
            self._api.remove_container(name, v=True, force=True)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code != 409:
                raise
            self._wait_until_gone(name)
        self.mount_points.release(identity)

    @translated
    def logs(self, identity: str, *, follow: bool, tail: int | None) -> Closable[bytes]:
        """Return the log of a container as a stream of bytes; `tail` limits it to the last lines."""
        name = name_of(identity)
        # the SDK asks for the log before the first byte is read, so a missing container is an error here
        return cast(
            "Closable[bytes]", self._api.logs(name, stream=True, follow=follow, tail="all" if tail is None else tail)
        )

    @translated
    def events(self) -> Closable[dict[str, Any]]:
        """Return the stream of starts and ends of our containers.

        Whoever follows them anew may have another engine before him, such as one that was upgraded.
        """
        self.negotiate()
        filters = {"type": "container", "label": LABEL_ID, "event": _EVENTS}
        events = self._api.events(decode=True, filters=filters)
        self._run = EngineRun(events)
        return cast("Closable[dict[str, Any]]", events)

    @translated
    def exec_create(self, identity: str, command: list[str], *, tty: bool) -> str:
        """Prepare a command in a running container and return its id."""
        name = name_of(identity)
        created = self._api.exec_create(name, command, stdin=True, stdout=True, stderr=True, tty=tty)
        return cast("str", created["Id"])

    @translated
    def exec_resize(self, exec_id: str, rows: int, cols: int) -> None:
        """Tell a command the size of its terminal."""
        self._api.exec_resize(exec_id, height=rows, width=cols)

    @translated
    def exec_inspect(self, exec_id: str) -> dict[str, Any]:
        """Return what Docker knows of a command: `Running`, `ExitCode`, `Pid`."""
        return self._api.exec_inspect(exec_id)

    @translated
    def networks(self) -> dict[int, Mapping[str, Any]]:
        """Return the inspections of all networks between containers of a session, by their numbers."""
        listed = self._api.networks(filters={"label": gang_network.LABEL})
        found = ((gang_network.number_of(each), each) for each in listed)
        return {number: each for number, each in found if number is not None}

    @translated
    def make_network(self, arguments: Mapping[str, Any]) -> None:
        """Make a network."""
        self._api.create_network(**arguments)

    @translated
    def remove_network(self, name: str) -> None:
        """Remove a network; no error where it is gone. Raises ConflictError while containers run on it."""
        try:
            self._api.remove_network(name)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != 403:
                raise
            raise ConflictError(reason_of(error), where=name, hint="remove its containers first") from error

    @translated
    def connect(self, identity: str, name: str, address: str) -> None:
        """Give a container that does not run yet an address on a network; no error where it has been given it."""
        container = name_of(identity)
        if name not in self._api.inspect_container(container)["NetworkSettings"]["Networks"]:
            self._api.connect_container_to_network(container, name, ipv4_address=address)

    @translated
    def default_bridge(self) -> str:
        """Return the bridge on which every container is."""
        options: dict[str, str] = self._api.inspect_network("bridge")["Options"]
        return options["com.docker.network.bridge.name"]

    def close(self) -> None:
        """Close the connections to Docker."""
        self._api.close()

    def _deleted_mib(self, inspection: Inspection, layer: Path) -> int:
        """Return what deleted files hold that a container still has open; they are in no folder."""
        engine_id, pid = inspections.process_of(inspection)
        points = {"/", *(mount["Destination"] for mount in inspection.get("Mounts", ()) if mount["Type"] == "volume")}
        return deleted_files.size_mib(engine_id, pid, points, layer) if pid else 0

    def _speaking(self, version: str, timeout_s: int = DEFAULT_TIMEOUT_SECONDS) -> docker.APIClient:
        return docker.APIClient(base_url=f"unix://{self.socket}", version=version, timeout=timeout_s)

    def _inspect_or_none(self, container: str) -> Inspection | None:
        try:
            return cast("Inspection", self._api.inspect_container(container))
        except NotFound:
            return None

    def _wait_until_gone(self, name: str) -> None:
        deadline = time.monotonic() + _REMOVAL_S
        while self._inspect_or_none(name) is not None:
            if time.monotonic() > deadline:
                reason = f"Docker does not finish removing {name}"
                raise UnavailableError(reason, where=name, hint="see `journalctl -u docker`")
            time.sleep(0.05)


def _missing(image: str) -> ImageMissingError:
    return ImageMissingError(f"there is no image {image}", where="image", hint="pull it")
