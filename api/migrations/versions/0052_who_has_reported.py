"""Nodes: to which database their agents have reported, and which containers it does not know"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart, "
    "missing_storages, protocol, unhealthy, orphaned_milli, nvlink, rdma, no_rdma, withheld, foreign_cpu_milli, "
    "foreign_memory_mib"
)
_THIS_DATABASE = """CREATE FUNCTION this_database() RETURNS text LANGUAGE sql STABLE AS $$
SELECT concat_ws('/', oid, extract(epoch FROM pg_postmaster_start_time()))
FROM pg_database WHERE datname = current_database() $$"""
"""What a restore makes another one: a dump comes into a new database, a log into a server that begins again."""


def upgrade() -> None:
    """Go forward; of the nodes that there are nobody knows to which database they reported: this may be a restore."""
    op.execute(_THIS_DATABASE)
    op.add_column("nodes", sa.Column("reported_to", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.alter_column("nodes", "reported_to", server_default=sa.text("this_database()"))
    op.add_column("nodes", sa.Column("unknown_ids", JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb")))
    _count_changes(f"{_BEFORE}, reported_to")


def downgrade() -> None:
    """Go back."""
    _count_changes(_BEFORE)
    op.drop_column("nodes", "unknown_ids")
    op.drop_column("nodes", "reported_to")
    op.execute("DROP FUNCTION this_database()")


def _count_changes(columns: str) -> None:
    """Count the changes of these columns of nodes, which matter to the scheduler."""
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
