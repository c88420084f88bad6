"""Ways between GPUs: what NCCL told of them in logs, InfiniBand of nodes, and what sessions ask for"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart, "
    "missing_storages, protocol, unhealthy, orphaned_milli"
)


def upgrade() -> None:
    """Go forward."""
    op.add_column("containers", _added("nccl", JSONB(), "'{}'::jsonb"))
    op.add_column("nodes", _added("rdma", sa.Boolean(), "false"))
    op.add_column("nodes", _added("no_rdma", sa.Text(), "''"))
    op.add_column("nodes", _added("hcas", JSONB(), "'[]'::jsonb"))
    op.add_column("sessions", sa.Column("p2p", sa.Boolean(), nullable=True))
    op.add_column("sessions", _added("rdma", sa.Boolean(), "false"))
    _count_changes(f"{_BEFORE}, nvlink, rdma, no_rdma")


def downgrade() -> None:
    """Go back."""
    _count_changes(_BEFORE)
    for table, column in (
        *(("sessions", "rdma"), ("sessions", "p2p")),
        *(("nodes", "hcas"), ("nodes", "no_rdma"), ("nodes", "rdma")),
        ("containers", "nccl"),
    ):
        op.drop_column(table, column)


def _added(name: str, kind: sa.types.TypeEngine[Any], default: str) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=sa.text(default))


def _count_changes(columns: str) -> None:
    """Count the changes of these columns of nodes, which matter to the scheduler."""
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
