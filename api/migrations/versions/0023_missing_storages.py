"""Storages that nodes lack, which matter to the scheduler"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart"
)


def upgrade() -> None:
    """Go forward."""
    op.add_column("nodes", sa.Column("missing_storages", sa.JSON(), nullable=False, server_default="{}"))
    # two values of this type cannot be compared, so none is a default that the tables could be checked for
    op.alter_column("nodes", "missing_storages", server_default=None)
    _count(f"{BEFORE}, missing_storages")


def downgrade() -> None:
    """Go back."""
    _count(BEFORE)
    op.drop_column("nodes", "missing_storages")


def _count(columns: str) -> None:
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
