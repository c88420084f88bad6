"""Bodies of requests of the session endpoints."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from api.resources.presets.schemas import MAX_MEMORY_MIB, CpuMilli, MemoryMib, ShmMib
from api.resources.schemas import Moment, Name, Request, Text
from api.tables.projects import Access
from api.tables.sessions import MAX_CONTAINERS, Kind
from common.gpu.kinds import Enforcement
from common.hints import hinted
from common.protocol import SYSTEM_FOLDERS, belongs_to_system
from common.sentence import Sentence, Several
from common.topology import TopologyLevel

MAX_BATCH = 100
"""Most sessions of one request."""
MAX_VARIABLES = 256
MAX_SECONDS = 366 * 24 * 3600
OUR_VARIABLES = "PENSTOCK_"


def _not_ours(name: str) -> str:
    if name.startswith(OUR_VARIABLES):
        raise ValueError(Sentence("variables that begin with {start} belong to Penstock", start=OUR_VARIABLES))
    return name


Word = Annotated[Text, Field(max_length=32_768)]
Folder = Annotated[
    str,
    Field(max_length=255, pattern=r"^(/[A-Za-z0-9._-]+)+$"),
    hinted(Sentence("write a path such as {path}", path="/data"), Sentence("is not a folder")),
]
DiskMib = Annotated[int, Field(ge=1, le=MAX_MEMORY_MIB)]
"""MiB that a container may write beside its mounts."""
VariableName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
    AfterValidator(_not_ours),
    hinted(Sentence("write letters, digits and _, such as {example}", example="EPOCHS")),
]
Port = Annotated[int, Field(ge=1, le=65535)]
GpuModel = Annotated[Text, Field(min_length=1, max_length=128)]
Priority = Annotated[int, Field(ge=0, le=100)]


def _no_dots(value: str) -> str:
    if {".", ".."} & set(value.split("/")):
        raise ValueError(Sentence("`.` and `..` are not folders of a session"))
    return value


def _not_of_the_system(value: str) -> str:
    if belongs_to_system(value):
        raise ValueError(
            Sentence(
                "{folders} belong to the container's system; choose another target", folders=Several(SYSTEM_FOLDERS)
            )
        )
    return _no_dots(value)


class PvcRequest(Request):
    """A folder of the project on the shared storage, seen in the session at `target`."""

    name: Name
    target: Folder
    read_only: bool = False

    _target = field_validator("target")(_not_of_the_system)


class VolumeRequest(Request):
    """A folder of the node that the administrator has opened to sessions, seen in the session at `target`."""

    source: Folder
    target: Folder
    read_only: bool = False

    _source = field_validator("source")(_no_dots)
    _target = field_validator("target")(_not_of_the_system)


Mounted = PvcRequest | VolumeRequest


class SessionRequest(Request):
    """A session to submit: one or more equal containers that start together.

    `kind` is training unless it is said; `interactive` is short for that kind. `gpu_milli` (milli-GPU; 0: none, then
    `cpu_milli` is needed), `cpu_milli` (thousandths of a core, 0: no limit), `memory_mib`, `shm_mib` (`/dev/shm`, part
    of the memory) and `disk_mib` (what it writes beside its mounts) are for one of the `replicas`. What is left out
    comes from the `preset`; memory and disk that it does not say go by the GPUs, or by the cores where there are none.
    `large_shm` gives half of the memory. Only on GPUs of one of the `gpu_models` it runs, and
    only where shares are held by `enforcement` or a stronger kind; a `group` is a resource group that it keeps to.
    With `p2p` its GPUs reach each other by NVLink, and without (false, not null) they do not use it; with `rdma` its
    containers meet over InfiniBand. With `max_replicas` it starts with its `replicas`, gets more while there is room,
    and gives these up before others lose anything for it.
    `within` is the part of the network that the containers share where they can, with `within_required` in any case. A
    higher `priority` goes first within the project. A `preemptible` session may use what other projects leave idle, and
    is put back into the queue when they ask for it. It waits at least until `starts_at`, and is stopped when it has
    run for `limit_s`: what is known to end may start before what others wait for. `command` None means the image's
    own, and `args` follow it. Each of `ports` gets an address at the site's edge. `image` is one that the
    project may use, or with `local_image` a reference that is on the node already. The command line says so by
    `created_by_cli`. `access` says who sees it: its `project`, or as `private` its owner alone of the project's
    members; where it is left out the project's `session_access` says so.
    """

    name: Name
    project: Name
    image: str = Field(min_length=1, max_length=512)
    kind: Kind | None = None
    interactive: bool = False
    preset: Name | None = None
    gpu_milli: int | None = None
    cpu_milli: CpuMilli | None = None
    memory_mib: MemoryMib | None = None
    shm_mib: ShmMib | None = None
    large_shm: bool = False
    disk_mib: DiskMib | None = None
    replicas: int = Field(default=1, ge=1, le=MAX_CONTAINERS)
    max_replicas: Annotated[int, Field(ge=1, le=MAX_CONTAINERS)] | None = None
    gpu_models: list[GpuModel] = Field(default=[], max_length=32)
    enforcement: Enforcement | None = None
    group: Name | None = None
    within: TopologyLevel = TopologyLevel.ANYWHERE
    within_required: bool = False
    p2p: bool | None = None
    rdma: bool = False
    priority: Priority | None = None
    preemptible: bool | None = None
    starts_at: Moment | None = None
    limit_s: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = None
    local_image: bool = False
    command: Annotated[list[Word], Field(min_length=1, max_length=256)] | None = None
    args: list[Word] = Field(default=[], max_length=256)
    environment: dict[VariableName, Word] = Field(default={}, max_length=MAX_VARIABLES)
    ports: list[Port] = Field(default=[], max_length=16)
    pvcs: list[PvcRequest] = Field(default=[], max_length=32)
    volumes: list[VolumeRequest] = Field(default=[], max_length=32)
    access: Access | None = None
    created_by_cli: bool = False

    @property
    def kind_or_default(self) -> Kind:
        """What the session is for."""
        return self.kind or (Kind.INTERACTIVE if self.interactive else Kind.TRAINING)

    @property
    def most_replicas(self) -> int:
        """How many containers it comes to have at most."""
        return self.max_replicas or self.replicas

    @field_validator("max_replicas")
    @classmethod
    def _no_fewer(cls, value: int | None, info: ValidationInfo) -> int | None:
        least = info.data.get("replicas", 1)
        if value is not None and value < least:
            reason, hint = (
                Sentence("it is fewer than the `replicas` that it starts with"),
                Sentence("write {least} or more, or start with fewer", least=least),
            )
            raise PydanticCustomError("hinted", "{reason}", {"reason": reason, "hint": hint})
        return value

    @field_validator("image")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.isprintable() or " " in value:
            raise ValueError(Sentence("an image is written without spaces and signs that cannot be seen"))
        return value

    @field_validator("environment", mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        # pydantic counts only when it has looked at every one
        if isinstance(value, dict) and len(value) > MAX_VARIABLES:
            raise ValueError(Sentence("{given} variables are more than {most}", given=len(value), most=MAX_VARIABLES))
        return value

    @field_validator("interactive")
    @classmethod
    def _one_kind(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("kind") not in (None, Kind.INTERACTIVE):
            raise ValueError(
                Sentence(
                    "it cannot be interactive and {kind} at once; leave one of both out", kind=info.data["kind"].value
                )
            )
        return value

    @field_validator("large_shm")
    @classmethod
    def _one_shm(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("shm_mib") is not None:
            raise ValueError(Sentence("`shm_mib` says already how large it is; leave one of both out"))
        return value

    @field_validator("ports")
    @classmethod
    def _ports_differ(cls, value: list[int]) -> list[int]:
        if len(set(value)) < len(value):
            raise ValueError(Sentence("a port is named twice"))
        return value

    @field_validator("pvcs", "volumes")
    @classmethod
    def _targets_differ(cls, value: list[Mounted], info: ValidationInfo) -> list[Mounted]:
        targets = [mount.target for mount in (*info.data.get("pvcs", ()), *value)]
        if len(set(targets)) < len(targets):
            raise ValueError(Sentence("two mounts have one target; choose another"))
        return value


class BatchRequest(SessionRequest):
    """Equal sessions to submit, all or none: `count` 3 makes NAME-1, NAME-2 and NAME-3."""

    count: int = Field(ge=1, le=MAX_BATCH)


class DryRunRequest(BatchRequest):
    """What to submit if it were meant: `count` equal sessions, or one."""

    count: int = Field(default=1, ge=1, le=MAX_BATCH)


class SessionChange(Request):
    """What to change: the `priority` of a session that waits, `gpu_milli` of each container of one that runs, or
    `access`: who sees it.
    """

    priority: Priority | None = None
    gpu_milli: int | None = None
    access: Access | None = None

    @model_validator(mode="after")
    def _one(self) -> SessionChange:
        if [self.priority, self.gpu_milli, self.access].count(None) != 2:
            raise ValueError(Sentence("write one of `priority`, `gpu_milli` and `access`"))
        return self


class Extension(Request):
    """How many seconds to put off the end of a session that has a time limit."""

    seconds: int = Field(ge=1, le=MAX_SECONDS)
