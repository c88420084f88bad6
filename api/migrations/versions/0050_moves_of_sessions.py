"""Sessions: how often they were moved so that others fit, and when last"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("sessions", sa.Column("moves", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("moved_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "moved_at")
    op.drop_column("sessions", "moves")
