"""Protocols: what agents speak, and what has to be spoken to run a session"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart, "
    "missing_storages"
)


def upgrade() -> None:
    """Go forward."""
    for table in ("nodes", "sessions"):
        op.add_column(table, sa.Column("protocol", sa.Integer(), nullable=False, server_default="0"))
    _count_changes(f"{_BEFORE}, protocol")


def downgrade() -> None:
    """Go back."""
    _count_changes(_BEFORE)
    for table in ("nodes", "sessions"):
        op.drop_column(table, "protocol")


def _count_changes(columns: str) -> None:
    """Count the changes of these columns of nodes, which matter to the scheduler."""
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
