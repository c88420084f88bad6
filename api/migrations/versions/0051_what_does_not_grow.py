"""Elastic sessions: why they got no further containers when that was looked at last"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("sessions", sa.Column("not_grown", sa.Text(), nullable=False, server_default=sa.text("''")))
    parts = sa.Column("not_grown_parts", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb"))
    op.add_column("sessions", parts)


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "not_grown_parts")
    op.drop_column("sessions", "not_grown")
