"""Repairs: runs that were ordered, and what has become of them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_AUDITED = ("name", "node", "dry_run", "agreed", "user_name")
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "repair_runs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("node", sa.String(255)),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("agreed", sa.Boolean(), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("record", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_repair_runs"),
    )
    op.create_index("ix_repair_runs_created_at", "repair_runs", ["created_at"])
    names = ", ".join(f"'{name}'" for name in _AUDITED)
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {', '.join(_AUDITED)} ON repair_runs "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )


def downgrade() -> None:
    """Go back."""
    op.drop_table("repair_runs")
