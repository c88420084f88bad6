"""GPUs that orphaned containers hold, which matter to the scheduler"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart, "
    "missing_storages, protocol, unhealthy"
)


def upgrade() -> None:
    """Go forward."""
    nothing = sa.text("'{}'::jsonb")
    op.add_column("nodes", sa.Column("orphaned_milli", JSONB(), nullable=False, server_default=nothing))
    _count_changes(f"{_BEFORE}, orphaned_milli")


def downgrade() -> None:
    """Go back."""
    _count_changes(_BEFORE)
    op.drop_column("nodes", "orphaned_milli")


def _count_changes(columns: str) -> None:
    """Count the changes of these columns of nodes, which matter to the scheduler."""
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
