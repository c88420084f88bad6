"""Nodes: why their launcher lends nothing of them, and what others have of them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart, "
    "missing_storages, protocol, unhealthy, orphaned_milli, nvlink, rdma, no_rdma"
)


def upgrade() -> None:
    """Go forward."""
    op.add_column("nodes", sa.Column("withheld", sa.Text(), nullable=False, server_default=sa.text("''")))
    for name in ("foreign_cpu_milli", "foreign_memory_mib"):
        op.add_column("nodes", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    _count_changes(f"{_BEFORE}, withheld, foreign_cpu_milli, foreign_memory_mib")


def downgrade() -> None:
    """Go back."""
    _count_changes(_BEFORE)
    for name in ("foreign_memory_mib", "foreign_cpu_milli", "withheld"):
        op.drop_column("nodes", name)


def _count_changes(columns: str) -> None:
    """Count the changes of these columns of nodes, which matter to the scheduler."""
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
