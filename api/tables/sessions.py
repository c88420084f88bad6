"""Tables of sessions."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    Enum,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship, undefer_group

from api.clock import now
from api.tables.base import Base
from api.tables.nodes import Node
from api.tables.projects import ACCESS, Access, Project
from common.protocol import DEFAULT_SHM_MIB, ContainerStatus
from common.sentence import sentence_of


class Kind(StrEnum):
    """What a session is for: a person at work, a program that runs to its end, or one that answers others."""

    INTERACTIVE = "interactive"
    TRAINING = "training"
    SERVICE = "service"


class State(StrEnum):
    """Where a session stands."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"


ENDED = (State.TERMINATED, State.FAILED)
BEFORE_START = (State.PENDING, State.SCHEDULED, State.PREPARING)
HOLDING = (State.SCHEDULED, State.PREPARING, State.RUNNING, State.TERMINATING)
"""States in which a session holds its GPUs; TERMINATING too, for its container may still run."""

MAX_CONTAINERS = 20
"""Most containers of one session."""

_state = Enum(State, native_enum=False, length=16)
_kind = Enum(Kind, native_enum=False, length=16, values_callable=lambda kinds: [kind.value for kind in kinds])
_status = Enum(
    ContainerStatus, native_enum=False, length=16, values_callable=lambda values: [value.value for value in values]
)
LIVE = text("state NOT IN ('TERMINATED', 'FAILED')")
FAILED = text("state = 'FAILED'")
_finished = text("finished_at IS NOT NULL")
_resized = text("resize_milli IS NOT NULL")
HOLDS = text("state IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING')")
"""`HOLDING`, written as in the index of the sessions that hold places, which are few of all that there were."""
LISTED = text("state <> 'TERMINATED'")
"""Which sessions a list has unless all are asked for; written as in the indexes, or these would be of no use."""

MAX_LOG_BYTES, MAX_LOGS_BYTES = 256 << 10, 1 << 20
"""Most that is kept of the log of one container, and of those of all containers of a session."""

_GROUP = "of-containers"
OF_CONTAINERS: dict[str, Any] = {"deferred": True, "deferred_group": _GROUP, "deferred_raiseload": True}
"""Columns that only the containers of a session are made from: they may be long, so they are read when asked for."""
WHOLE = undefer_group(_GROUP)
"""Reads these columns too."""


def container_id(session_id: UUID, attempt: int, rank: int) -> str:
    """Return the id of a container, made by us so that a repeated launch is the same one."""
    return f"session-{session_id}-{attempt}-{rank}"


class Session(Base):
    """`replicas` equal containers that start and end together, each with a share of GPUs, cores and memory.

    `gpu_milli`, `cpu_milli` (thousandths of a core, 0: no limit), `memory_mib`, `shm_mib` and `disk_mib` are for one
    container; 0 of memory or disk is no limit, which only sessions of earlier versions have. `revision` is the row's
    lock token: whoever changes the row names the revision it has read. A TERMINATING session comes to its `final_state`
    when its containers are gone: to PENDING where they were only reclaimed. `attempt` counts how often it was put
    back into the queue: reclaimed, restarted, or without its node; `interrupted` is why it was the last time.
    `since` is when it came to its state. Before `starts_at` it waits, and before `tries_at` where the launcher did not
    lend its place, `refusals` times in a row; at `expires_at` it is stopped. `cause` and
    `position` say for programs why it waits, and `reserved_on` names the nodes where places are reserved for it.
    It was moved `moves` times so that others fit, last at `moved_at`.
    `reason` is English; a sentence is made of `reason_parts`.

    `enforcement` is the kind that has to hold its shares, or a stronger one. `held_milli` is what it takes of GPUs with
    all containers, 0 before it has its places: more than it asks for where a container was given a MIG device. While
    its share changes, `resize_milli` is what a container shall have, `before_milli` what it had (see `resizing`).
    `network` is the number of the network between its containers, None where it has one container or no places.
    `changed_in` is the transaction that last changed its `revision`, by a trigger.
    `sandbox` names the one that it was given, with the rules of then; `denied` counts the calls that it cost.
    With `p2p` its GPUs have to reach each other by NVLink, without (False, not None) they may not; with `rdma` its
    containers meet over InfiniBand.
    With `max_replicas` it is elastic: it starts with `min_replicas`, and `replicas` is how many it has by now, since
    `replicas_at`; its further containers come to nodes of its `reach`, whose addresses by name are known to all of it.
    `interfaces` leads from the names of nodes to the interface that was chosen there when it got its places, and to
    that one's address: by it they are reached.
    `not_grown` is why it got none when that was looked at last, made of `not_grown_parts`; that says nothing once it
    has all, or does not run.
    `ports` is what was asked for; its `services` go as it ends.
    `protocol` is what agents have to speak to run it. `request_id` is that which last asked for it to run.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        Index("uq_sessions_live_name", "project_id", "name", unique=True, postgresql_where=LIVE),
        Index("ix_sessions_state_created_at", "state", "created_at"),
        Index("ix_sessions_created_at_id", "created_at", "id", postgresql_where=LISTED),
        Index(
            *("ix_sessions_project_id_created_at_id", "project_id", "created_at", "id"),
            postgresql_where=LISTED,
        ),
        Index("ix_sessions_user_name_created_at_id", "user_name", "created_at", "id", postgresql_where=LISTED),
        Index("ix_sessions_every_created_at_id", "created_at", "id"),
        Index("ix_sessions_every_project_id_created_at_id", "project_id", "created_at", "id"),
        Index("ix_sessions_every_user_name_created_at_id", "user_name", "created_at", "id"),
        Index("ix_sessions_project_id_name_created_at", "project_id", "name", "created_at"),
        Index("ix_sessions_failed_name", "project_id", "name", "created_at", postgresql_where=FAILED),
        Index("ix_sessions_holding", "id", postgresql_where=HOLDS),
        Index("ix_sessions_finished_at", "finished_at", postgresql_where=_finished),
        Index("ix_sessions_changed_in", "changed_in"),
        Index("ix_sessions_resize_milli", "resize_milli", postgresql_where=_resized),
        Index("ix_sessions_growing", "id", postgresql_where=text("state = 'RUNNING' AND replicas < max_replicas")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20))
    project_id: Mapped[UUID] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    user_name: Mapped[str] = mapped_column(String(20))
    access: Mapped[Access] = mapped_column(ACCESS, default=Access.PROJECT, server_default=Access.PROJECT.value)
    image: Mapped[str] = mapped_column(String(257))
    reference: Mapped[str] = mapped_column(String(512))
    kind: Mapped[Kind] = mapped_column(_kind)
    priority: Mapped[int] = mapped_column(default=50, server_default="50")
    preemptible: Mapped[bool]
    replicas: Mapped[int] = mapped_column(default=1, server_default="1")
    min_replicas: Mapped[int] = mapped_column(default=0, server_default="0")
    max_replicas: Mapped[int] = mapped_column(default=0, server_default="0")
    replicas_at: Mapped[datetime | None]
    reach: Mapped[dict[str, str]] = mapped_column(JSONB, default=dict, server_default=text("'{}'::jsonb"))
    interfaces: Mapped[dict[str, list[str]]] = mapped_column(JSONB, default=dict, server_default=text("'{}'::jsonb"))
    not_grown: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    not_grown_parts: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict, server_default=text("'{}'::jsonb"))
    gpu_milli: Mapped[int]
    cpu_milli: Mapped[int] = mapped_column(default=0, server_default="0")
    memory_mib: Mapped[int] = mapped_column(default=0, server_default="0")
    shm_mib: Mapped[int] = mapped_column(default=DEFAULT_SHM_MIB, server_default=str(DEFAULT_SHM_MIB))
    disk_mib: Mapped[int] = mapped_column(default=0, server_default="0")
    enforcement: Mapped[str] = mapped_column(String(16), default="none", server_default="none")
    held_milli: Mapped[int] = mapped_column(default=0, server_default="0")
    resize_milli: Mapped[int | None]
    before_milli: Mapped[int | None]
    network: Mapped[int | None]
    preset: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))
    group: Mapped[str] = mapped_column("resource_group", String(63), default="", server_default=text("''"))
    gpu_models: Mapped[list[str]] = mapped_column(JSON, default=list)
    ports: Mapped[list[int]] = mapped_column(JSONB, default=list, server_default=text("'[]'::jsonb"))
    within: Mapped[str] = mapped_column(String(16), default="anywhere", server_default="anywhere")
    within_required: Mapped[bool] = mapped_column(default=False, server_default="0")
    p2p: Mapped[bool | None]
    rdma: Mapped[bool] = mapped_column(default=False, server_default="0")
    command: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True), **OF_CONTAINERS)
    args: Mapped[list[str]] = mapped_column(JSON, **OF_CONTAINERS)
    environment: Mapped[dict[str, str]] = mapped_column(JSON, **OF_CONTAINERS)
    mounts: Mapped[list[dict[str, Any]]] = mapped_column(JSON, **OF_CONTAINERS)
    local_image: Mapped[bool] = mapped_column(default=False, server_default="0")
    sandbox: Mapped[str] = mapped_column(String(20), default="", server_default=text("''"))
    sandbox_rules: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list, **OF_CONTAINERS)
    denied: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_by_cli: Mapped[bool] = mapped_column(default=False, server_default="0")
    protocol: Mapped[int] = mapped_column(default=0, server_default="0")
    request_id: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))
    state: Mapped[State] = mapped_column(_state, default=State.PENDING)
    since: Mapped[datetime] = mapped_column(default=now)
    reason: Mapped[str] = mapped_column(Text, default="")
    reason_parts: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict, server_default=text("'{}'::jsonb"))
    cause: Mapped[str] = mapped_column(String(16), default="", server_default=text("''"))
    position: Mapped[int] = mapped_column(default=0, server_default="0")
    reserved_on: Mapped[list[str]] = mapped_column(JSONB, default=list, server_default=text("'[]'::jsonb"))
    final_state: Mapped[State | None] = mapped_column(_state)
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    revision: Mapped[int] = mapped_column(default=0)
    changed_in: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[datetime] = mapped_column(default=now)
    starts_at: Mapped[datetime | None]
    refusals: Mapped[int] = mapped_column(default=0, server_default="0")
    tries_at: Mapped[datetime | None]
    scheduled_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    limit_s: Mapped[int] = mapped_column(default=0, server_default="0")
    expires_at: Mapped[datetime | None]
    extended_s: Mapped[int] = mapped_column(default=0, server_default="0")
    moves: Mapped[int] = mapped_column(default=0, server_default="0")
    moved_at: Mapped[datetime | None]
    warned_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    exit_code: Mapped[int | None]
    interrupted: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    interrupted_at: Mapped[datetime | None]

    project: Mapped[Project] = relationship(lazy="joined", innerjoin=True)
    containers: Mapped[list[Container]] = relationship(
        order_by="Container.rank", lazy="selectin", cascade="all, delete-orphan", passive_deletes=True
    )
    services: Mapped[list[Service]] = relationship(
        order_by="Service.port", lazy="raise", cascade="all, delete-orphan", passive_deletes=True
    )

    @property
    def total_milli(self) -> int:
        """What all its containers hold together, in milli-GPU; before they have their places, what they ask for."""
        return max(self.held_milli, self.replicas * self.gpu_milli)

    @property
    def most_replicas(self) -> int:
        """How many containers it has at most."""
        return self.max_replicas or self.replicas

    @property
    def log_bytes(self) -> int:
        """How many bytes are kept of the log of each container when it is gone: the last ones."""
        return min(MAX_LOG_BYTES, MAX_LOGS_BYTES // self.most_replicas)

    @property
    def why(self) -> str:
        """Its reason as a sentence, where it is one."""
        return sentence_of(self.reason, self.reason_parts)

    @property
    def nodes(self) -> list[Node]:
        """The nodes of its containers, each once, in the order of their ranks."""
        return list({container.node_id: container.node for container in self.containers}.values())

    def container_id(self, rank: int, *, attempt: int | None = None) -> str:
        """The id of one of its containers, of this attempt where none is named."""
        return container_id(self.id, self.attempt if attempt is None else attempt, rank)


class Container(Base):
    """One container of a session that has its place; `status` None: its agent has not been asked for it yet.

    `ports` leads from a port of the container to the port of the agent where the edge reaches it. `enforcement` is how
    its GPU shares are held, `warning` what its agent finds wrong while it runs. One that is `leaving` is being removed
    while the others run. `nccl` is what its log told of the ways
    between GPUs (`common.nccl.NcclEvidence`), empty where that is nothing.
    """

    __tablename__ = "containers"
    __table_args__ = (Index("ix_containers_leaving", "session_id", postgresql_where=text("leaving")),)

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[UUID] = mapped_column(ForeignKey("nodes.id"), index=True)
    status: Mapped[ContainerStatus | None] = mapped_column(_status)
    error: Mapped[str] = mapped_column(Text, default="")
    exit_code: Mapped[int | None]
    started_at: Mapped[datetime | None]
    ports: Mapped[dict[str, int]] = mapped_column(JSON, default=dict)
    enforcement: Mapped[str | None] = mapped_column(String(16))
    warning: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    nccl: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict, server_default=text("'{}'::jsonb"))
    leaving: Mapped[bool] = mapped_column(default=False, server_default="false")

    node: Mapped[Node] = relationship(lazy="joined", innerjoin=True)
    gpu_shares: Mapped[list[GpuShareRow]] = relationship(
        order_by="GpuShareRow.index", lazy="joined", cascade="all, delete-orphan", passive_deletes=True
    )


class GpuShareRow(Base):
    """The share of one GPU that a container holds; of a MIG device always all that it is of a GPU."""

    __tablename__ = "gpu_shares"
    __table_args__ = (
        ForeignKeyConstraint(["session_id", "rank"], ["containers.session_id", "containers.rank"], ondelete="CASCADE"),
    )

    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(String(128))
    milli: Mapped[int]


class GangNetwork(Base):
    """The network between the containers of one attempt of a session; nobody else has its `number`.

    It outlives its session while a node may still have a container of that attempt, so it refers to none.
    """

    __tablename__ = "gang_networks"
    __table_args__ = (UniqueConstraint("session_id", "attempt"),)

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    session_id: Mapped[UUID]
    attempt: Mapped[int]


class GangNode(Base):
    """A node that may have a container on a gang's network."""

    __tablename__ = "gang_nodes"

    number: Mapped[int] = mapped_column(
        ForeignKey("gang_networks.number", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    node_id: Mapped[UUID] = mapped_column(ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True, index=True)


class Service(Base):
    """A port of a live session that its users reach through the edge at `/<path>/`; gone when the session has ended.

    An app that knows its own prefix (`base_path`, such as Jupyter's base_url) is also reached there, and unchanged.
    """

    __tablename__ = "services"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str] = mapped_column(String(63), unique=True)
    base_path: Mapped[str | None] = mapped_column(String(255), unique=True)


class SessionLog(Base):
    """The last part of the log of an ended session's first container, which it outlives."""

    __tablename__ = "session_logs"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    tail: Mapped[bytes]


class RankLog(Base):
    """The last part of the log of a further container of a session that has ended."""

    __tablename__ = "rank_logs"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tail: Mapped[bytes]
