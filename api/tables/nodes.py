"""Tables of nodes and their GPUs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, BigInteger, Enum, ForeignKey, String, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.clock import now
from api.tables.base import Base
from common.gpu.share import MILLI


class NodeState(StrEnum):
    """Whether a node's agent reports; a `lost` one has not for a while, an `unready` one says why it starts nothing."""

    READY = "ready"
    UNREADY = "unready"
    LOST = "lost"


class NodeMode(StrEnum):
    """What an administrator wants of a node: `draining` ends what runs on it, `maintenance` only takes nothing new."""

    ACTIVE = "active"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"


class Node(Base):
    """A machine with an agent, as its last heartbeat described it.

    `message` says what is wrong with it, where something is. At `drain_until` what still runs on a draining node is
    ended. `started_at` is when its agent started. With `unknown_containers` it takes nothing new, for these hold GPUs
    that no session of ours is known to hold; `unknown_ids` are theirs, with those that have ended. `orphaned_milli` is
    what orphaned containers, these among them, hold of each GPU, which is given to nobody. `reported_to` is the
    database, as `this_database()` tells it, to which its agent has said what it runs: until that is this one, the node
    takes nothing new, and nothing is launched there. `enforcement` is how its GPU shares are held,
    `enforcement_pending` which kind follows and what that waits for. `heard` counts its heartbeats: whether it lives is
    told by no clock. With a `clock_offset_s` its own clock is so far ahead of the API's, beyond the bounds, and it
    takes nothing new.
    `missing_storages` says by the names of storages why it lacks them: what mounts one of them is not placed on it.
    `protocol` is what its agent speaks, `machine` which start of which machine it reports from. With failing
    checks that matter it is `unhealthy`, and takes nothing new.
    `hcas` are its ports of InfiniBand (`common.rdma.Hca`), `rdma` whether sessions may use them, `no_rdma` why not.
    `interfaces` are its network interfaces (`common.interfaces.Interface`), `interface` the name of the one that an
    administrator has chosen for what the containers of sessions say to those of other nodes; empty: that which has its
    `address`.
    `withheld` says why the launcher lends nothing of it, and others have its `foreign_cpu_milli` and
    `foreign_memory_mib`, as the launcher sees it.
    `revision` counts, by triggers, the changes that matter to the scheduler: its own and those of its GPUs.
    """

    __tablename__ = "nodes"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    address: Mapped[str] = mapped_column(String(255))
    port: Mapped[int]
    state: Mapped[NodeState] = mapped_column(
        Enum(NodeState, native_enum=False, length=16, values_callable=lambda states: [state.value for state in states]),
        default=NodeState.READY,
    )
    mode: Mapped[NodeMode] = mapped_column(
        Enum(NodeMode, native_enum=False, length=16, values_callable=lambda modes: [mode.value for mode in modes]),
        default=NodeMode.ACTIVE,
        server_default=NodeMode.ACTIVE.value,
    )
    drain_until: Mapped[datetime | None]
    message: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    unknown_containers: Mapped[int] = mapped_column(default=0, server_default="0")
    unknown_ids: Mapped[list[str]] = mapped_column(JSONB, default=list, server_default=text("'[]'::jsonb"))
    reported_to: Mapped[str] = mapped_column(Text, server_default=text("this_database()"))
    orphaned_milli: Mapped[dict[str, int]] = mapped_column(JSONB, default=dict, server_default=text("'{}'::jsonb"))
    agent_version: Mapped[str] = mapped_column(Text, default="")
    engine_version: Mapped[str] = mapped_column(Text, default="")
    os: Mapped[str] = mapped_column(Text, default="")
    enforcement: Mapped[str] = mapped_column(Text, default="none")
    enforcement_pending: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    fractions: Mapped[bool] = mapped_column(default=True, server_default="1")
    nvlink: Mapped[bool] = mapped_column(default=False, server_default="0")
    rdma: Mapped[bool] = mapped_column(default=False, server_default="0")
    no_rdma: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    hcas: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, default=list, server_default=text("'[]'::jsonb"))
    interfaces: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, default=list, server_default=text("'[]'::jsonb"))
    interface: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    apart: Mapped[bool] = mapped_column(default=False, server_default="0")
    missing_storages: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    driver_version: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    cuda_version: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    region: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    switch: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    started_at: Mapped[datetime | None]
    cpu_milli: Mapped[int] = mapped_column(BigInteger, default=0)
    memory_mib: Mapped[int] = mapped_column(BigInteger, default=0)
    last_seen: Mapped[datetime | None]
    heard: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    clock_offset_s: Mapped[int] = mapped_column(default=0, server_default="0")
    protocol: Mapped[int] = mapped_column(default=0, server_default="0")
    machine: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    unhealthy: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    withheld: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    foreign_cpu_milli: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    foreign_memory_mib: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    revision: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[datetime] = mapped_column(default=now)
    gpus: Mapped[list[Gpu]] = relationship(
        order_by="Gpu.index", lazy="raise", cascade="all, delete-orphan", passive_deletes=True
    )
    """Read only by who says so: a node is read with each session on it, and nobody asks for its GPUs then."""


class Gpu(Base):
    """A GPU of a node, or a MIG device, which is a slice of the GPU `parent` and goes to one container.

    `simulated` marks one that no hardware stands behind. `accelerator` is the plugin that found it, `enforcement` how
    shares of it are held. `capacity_milli` is how much of a GPU it is: 1,000 unless it is a slice.
    """

    __tablename__ = "gpus"
    __table_args__ = (UniqueConstraint("node_id", "uuid"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    node_id: Mapped[UUID] = mapped_column(ForeignKey("nodes.id", ondelete="CASCADE"))
    index: Mapped[int]
    uuid: Mapped[str] = mapped_column(String(128))
    model: Mapped[str] = mapped_column(Text)
    memory_mib: Mapped[int] = mapped_column(BigInteger)
    simulated: Mapped[bool]
    island: Mapped[int] = mapped_column(default=0, server_default="0")
    accelerator: Mapped[str] = mapped_column(Text, default="nvidia", server_default="nvidia")
    enforcement: Mapped[str] = mapped_column(Text, default="none", server_default="none")
    parent: Mapped[str] = mapped_column(String(128), default="", server_default=text("''"))
    profile: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    capacity_milli: Mapped[int] = mapped_column(default=MILLI, server_default=str(MILLI))
