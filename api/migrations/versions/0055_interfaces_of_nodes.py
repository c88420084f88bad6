"""Nodes: their network interfaces, and the one by which containers meet, which the audit log tells"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None

_BEFORE = "name, mode, drain_until"
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.add_column("nodes", sa.Column("interfaces", JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb")))
    op.add_column("nodes", sa.Column("interface", sa.Text(), nullable=False, server_default=sa.text("''")))
    _note_changes(f"{_BEFORE}, interface")
    op.add_column("sessions", sa.Column("interfaces", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "interfaces")
    _note_changes(_BEFORE)
    op.drop_column("nodes", "interface")
    op.drop_column("nodes", "interfaces")


def _note_changes(columns: str) -> None:
    """Note the changes of these columns in the audit log."""
    names = ", ".join(f"'{name}'" for name in columns.split(", "))
    op.execute("DROP TRIGGER note_audited_change ON nodes")
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON nodes "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )
