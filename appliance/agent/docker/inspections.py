"""Docker's answer to `inspect`, and what it tells of a container of ours. Pure: nothing here talks to Docker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from appliance.agent.docker import cores, gang_network
from appliance.agent.docker.cores import CoreGrant
from appliance.agent.labels import (
    LABEL_BOOT,
    LABEL_CORES,
    LABEL_CPU_MILLI,
    LABEL_DIGEST,
    LABEL_DISK_MIB,
    LABEL_ENFORCEMENT,
    LABEL_GPUS,
    LABEL_ID,
    LABEL_LEASE,
    LABEL_NETWORK,
    LABEL_PORTS,
    LABEL_SESSION,
    id_of,
    name_of,
)
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare
from common.protocol import ContainerState, ContainerStatus, GangNetwork

Inspection = Mapping[str, Any]

OUT_OF_MEMORY = "out of memory"
_KILLED = 137
_ENGINE_ID = re.compile(r"[0-9a-f]{64}")
"""Docker's own id of a container; no id that the API makes is as long."""
NEVER = "0001-01-01T00:00:00Z"
_STATUS = {
    "created": ContainerStatus.CREATING,
    "running": ContainerStatus.RUNNING,
    "paused": ContainerStatus.RUNNING,
    "restarting": ContainerStatus.RUNNING,
    "removing": ContainerStatus.EXITED,
    "exited": ContainerStatus.EXITED,
    "dead": ContainerStatus.EXITED,
}
_EXIT_REASONS = {
    126: "exit code 126: the command cannot be executed; see the log",
    127: "exit code 127: the command is not in the image; see the log",
}
# those that an older agent left out stand for their defaults, as those that are empty do
_READERS: Mapping[str, tuple[str, str, Callable[[str], Any]]] = {
    "gpus": (LABEL_GPUS, "[]", TypeAdapter(list[GpuShare]).validate_json),
    "kind": (LABEL_ENFORCEMENT, Enforcement.NONE, Enforcement),
    "cores": (LABEL_CORES, "", cores.read),
    "cpu_milli": (LABEL_CPU_MILLI, "0", int),
    "disk_mib": (LABEL_DISK_MIB, "0", int),
    "ports": (LABEL_PORTS, "[]", TypeAdapter(list[int]).validate_json),
    "boot": (LABEL_BOOT, "", str),
    "lease": (LABEL_LEASE, "", str),
    "network": (LABEL_NETWORK, "null", TypeAdapter(GangNetwork | None).validate_json),
}


@dataclass(frozen=True)
class LabelValues:
    """What the labels of a container of ours say. Of labels that cannot be read, which `trouble` names, the session and
    the digest of the spec alone are believed.
    """

    session_id: str
    digest: str
    gpus: Sequence[GpuShare] = ()
    kind: Enforcement = Enforcement.NONE
    cores: tuple[int, ...] = ()
    cpu_milli: int = 0
    disk_mib: int = 0
    ports: Sequence[int] = ()
    network: GangNetwork | None = None
    boot: str = ""
    lease: str = ""
    trouble: str = ""

    @property
    def granted(self) -> CoreGrant:
        """The cores that it was given."""
        return CoreGrant(self.cores, self.cpu_milli)


def identity_of(inspection: Inspection) -> str:
    """Return the id of a container of ours: its name says it, which no image can; of a strange one Docker's own id."""
    return str(inspection["Id"]) if is_strange(inspection) else id_of(_name(inspection))


def is_strange(inspection: Inspection) -> bool:
    """Return whether a container has our labels under another name: somebody has renamed it, or made it."""
    labelled = _labelled(inspection)
    return bool(labelled) and name_of(labelled) != _name(inspection)


def is_listed_as_ours(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry in Docker's list that has the label of an id is one of ours, a strange one too."""
    labels = entry["Labels"]
    return LABEL_SESSION in labels or f"/{name_of(labels[LABEL_ID])}" in entry["Names"]


def is_id_of_strange(identity: str) -> bool:
    """Return whether an id is that of a strange container."""
    return _ENGINE_ID.fullmatch(identity) is not None


def name_to_remove(identity: str) -> str:
    """Return by what Docker finds the container of an id, a strange one too."""
    return identity if is_id_of_strange(identity) else name_of(identity)


def label_values(inspection: Inspection) -> LabelValues:
    """Return what the labels of a container say; no label makes this fail."""
    labels = inspection["Config"]["Labels"] or {}
    known = labels.get(LABEL_SESSION, ""), labels.get(LABEL_DIGEST, "")
    found: dict[str, Any] = {}
    for field, (label, default, read) in _READERS.items():
        try:
            found[field] = read(labels.get(label) or default)
        except ValueError:
            return LabelValues(*known, trouble=f"its label {label} cannot be read")
    return LabelValues(*known, **found)


def state_of(inspection: Inspection) -> ContainerState:
    """Return the state of a container of ours; of one whose labels cannot be read it has a warning."""
    values, state = label_values(inspection), inspection["State"]
    status, error = _STATUS[state["Status"]], state["Error"]
    if status is ContainerStatus.CREATING and error:
        status = ContainerStatus.FAILED
    if status is ContainerStatus.EXITED and not error:
        error = _EXIT_REASONS.get(state["ExitCode"], "")
    if state.get("OOMKilled"):
        error = f"{OUT_OF_MEMORY}: the limit is {inspection['HostConfig']['Memory'] >> 20} MiB"
    elif status is ContainerStatus.EXITED and state["ExitCode"] == _KILLED and not error:
        # Docker does not hear of memory that runs out in the first moments of a container
        error = "exit code 137: the program was killed (signal 9); if it ran out of memory, ask for more"
    return ContainerState(
        id=identity_of(inspection),
        # whose it is nobody can say any more
        session_id="" if is_strange(inspection) else values.session_id,
        status=status,
        exit_code=state["ExitCode"] if status.is_final else None,
        error=error,
        started_at=_time(state["StartedAt"]),
        finished_at=_time(state["FinishedAt"]),
        gpus=list(values.gpus),
        enforcement=values.kind if values.gpus else None,
        warning=_warning(inspection, values),
    )


def process_of(inspection: Inspection) -> tuple[str, int]:
    """Return Docker's id of a container, and the id of its first process; 0 where it does not run."""
    return str(inspection["Id"]), int(inspection["State"]["Pid"])


def written_places(inspection: Inspection) -> list[Path]:
    """Return the folders of this node with what a container wrote beside its mounts; none where Docker alone knows.

    Beside its own layer these are volumes that Docker made because its image asks for them.
    """
    driver = inspection.get("GraphDriver") or {}
    layer = (driver.get("Data") or {}).get("UpperDir")
    if not layer:
        return []
    volumes = [mount["Source"] for mount in inspection.get("Mounts", ()) if mount["Type"] == "volume"]
    return [Path(layer), *map(Path, volumes)]


def network_of(inspection: Inspection) -> GangNetwork | None:
    """Return the network on which a container of ours meets the others of its session.

    One that was started is believed only where Docker has it on that network: an agent of before may have left room for
    a label of the image.
    """
    network = label_values(inspection).network
    started = inspection["State"]["StartedAt"] != NEVER
    if network and started and gang_network.name_of(network.number) not in inspection["NetworkSettings"]["Networks"]:
        return None
    return network


def address_of(inspection: Inspection) -> str:
    """Return the address at which this node reaches a running container; empty where it has none."""
    networks = inspection["NetworkSettings"]["Networks"].items()
    reached = (network["IPAddress"] for name, network in networks if not gang_network.is_gang(name))
    return next((str(address) for address in reached if address), "")


def _warning(inspection: Inspection, values: LabelValues) -> str:
    name, labelled = _name(inspection), name_of(_labelled(inspection))
    if is_strange(inspection):
        return f"it is Docker's {name}, and was {labelled}"
    if inspection["State"]["Status"] == "paused":
        return f"it is paused: somebody ran `docker pause`; `docker unpause {name}` ends that"
    return values.trouble


def _name(inspection: Inspection) -> str:
    return str(inspection["Name"]).removeprefix("/")


def _labelled(inspection: Inspection) -> str:
    return str((inspection["Config"]["Labels"] or {}).get(LABEL_ID, ""))


def _time(text: str) -> datetime | None:
    return None if text == NEVER else datetime.fromisoformat(text)
