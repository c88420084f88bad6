"""Notices for people: what administrators tell everybody"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

_AUDITED = ("level", "text", "texts", "starts_at", "ends_at", "user_name")
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "notices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("texts", JSONB(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_name", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
    )
    names = ", ".join(f"'{name}'" for name in _AUDITED)
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {', '.join(_AUDITED)} ON notices "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )


def downgrade() -> None:
    """Go back."""
    op.drop_table("notices")
