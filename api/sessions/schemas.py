"""Bodies of the session endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, field_validator

from api.model import Name, Request, Text, View
from api.sessions.models import Kind, Session, State
from appliance.agent.protocol import ContainerStatus

Word = Annotated[Text, Field(max_length=32_768)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class VolumeRequest(Request):
    """A folder of the project on the shared storage, seen in the session at `target`."""

    name: Name
    target: str = Field(max_length=255, pattern=r"^(/[A-Za-z0-9._-]+)+$")

    @field_validator("target")
    @classmethod
    def _no_dots(cls, value: str) -> str:
        if {".", ".."} & set(value.split("/")):
            raise ValueError("`.` and `..` are not folders of a session")
        return value


class SessionRequest(Request):
    """A session to submit. `gpu_milli` is in milli-GPU; `command` None means the image's own, and `args` follow it."""

    name: Name
    project: Name
    image: str = Field(min_length=1, max_length=512)
    gpu_milli: int
    interactive: bool = False
    command: Annotated[list[Word], Field(min_length=1, max_length=256)] | None = None
    args: list[Word] = Field(default=[], max_length=256)
    environment: dict[VariableName, Word] = Field(default={}, max_length=256)
    volumes: list[VolumeRequest] = Field(default=[], max_length=32)

    @field_validator("volumes")
    @classmethod
    def _targets_differ(cls, value: list[VolumeRequest]) -> list[VolumeRequest]:
        if len({volume.target for volume in value}) < len(value):
            raise ValueError("two volumes have one target")
        return value


class GrantView(View):
    """The part of one GPU that a session holds, in milli-GPU."""

    index: int
    uuid: str
    milli: int


class ContainerView(View):
    """One container of a session, and the GPUs that it holds on its node."""

    rank: int
    node: str
    status: ContainerStatus | None
    error: str
    exit_code: int | None
    gpus: list[GrantView]


class SessionView(View):
    """A session; `reason` says why it waits, or why it failed. `node` and `gpus` are those of its first container."""

    id: UUID
    name: str
    project: str
    user: str
    image: str
    kind: Kind
    size: int
    gpu_milli: int
    state: State
    reason: str
    node: str | None
    gpus: list[GrantView]
    containers: list[ContainerView]
    attempt: int
    command: list[str] | None
    args: list[str]
    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    url: str | None

    @classmethod
    def of(cls, session: Session) -> SessionView:
        """Return the view of a row."""
        containers = [
            ContainerView(
                rank=container.rank,
                node=container.node.name,
                status=container.status,
                error=container.error,
                exit_code=container.exit_code,
                gpus=[GrantView.model_validate(grant) for grant in container.grants],
            )
            for container in session.containers
        ]
        return cls(
            id=session.id,
            name=session.name,
            project=session.project.name,
            user=session.user_name,
            image=session.image,
            kind=session.kind,
            size=session.size,
            gpu_milli=session.gpu_milli,
            state=session.state,
            reason=session.reason,
            node=containers[0].node if containers else None,
            gpus=containers[0].gpus if containers else [],
            containers=containers,
            attempt=session.attempt,
            command=session.command,
            args=session.args,
            created_at=session.created_at,
            scheduled_at=session.scheduled_at,
            started_at=session.started_at,
            finished_at=session.finished_at,
            exit_code=session.exit_code,
            url=None,
        )
