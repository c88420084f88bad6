"""Backups: which there are, and what was ordered about them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_AUDITED = ("action", "backup", "user_name")
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "backups",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("record", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_backups"),
    )
    op.create_table(
        "backup_orders",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("backup", sa.String(64)),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("record", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_backup_orders"),
    )
    op.create_index("ix_backup_orders_created_at", "backup_orders", ["created_at"])
    names = ", ".join(f"'{name}'" for name in _AUDITED)
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {', '.join(_AUDITED)} "
        f"ON backup_orders FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )


def downgrade() -> None:
    """Go back."""
    op.drop_table("backup_orders")
    op.drop_table("backups")
