"""Revisions of nodes, and the transactions that last changed sessions: the scheduler reads what is new"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_NODES = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart"
)
_GPUS = "node_id, index, uuid, model, island, enforcement, capacity_milli, parent"
_FUNCTIONS = """
CREATE FUNCTION count_change_of_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := OLD.revision + 1;
    RETURN NEW;
END
$$;
CREATE FUNCTION count_change_of_gpu() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE nodes SET revision = revision + 1 WHERE id = COALESCE(NEW.node_id, OLD.node_id);
    RETURN NULL;
END
$$;
CREATE FUNCTION note_transaction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_in := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END
$$
"""


def upgrade() -> None:
    """Go forward."""
    op.add_column("nodes", sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("changed_in", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_sessions_changed_in", "sessions", ["changed_in"])
    op.execute(_FUNCTIONS)
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {_NODES} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
    op.execute(
        f"CREATE TRIGGER count_change AFTER INSERT OR DELETE OR UPDATE OF {_GPUS} ON gpus "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_gpu()"
    )
    op.execute(
        "CREATE TRIGGER note_transaction BEFORE INSERT OR UPDATE OF revision ON sessions "
        "FOR EACH ROW EXECUTE FUNCTION note_transaction()"
    )


def downgrade() -> None:
    """Go back."""
    op.execute("DROP TRIGGER note_transaction ON sessions")
    for table in ("gpus", "nodes"):
        op.execute(f"DROP TRIGGER count_change ON {table}")
    for function in ("note_transaction", "count_change_of_gpu", "count_change_of_node"):
        op.execute(f"DROP FUNCTION {function}()")
    op.drop_index("ix_sessions_changed_in", "sessions")
    op.drop_column("sessions", "changed_in")
    op.drop_column("nodes", "revision")
