"""Interruptions of sessions: why one was put back into the queue the last time, and when"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("sessions", sa.Column("interrupted", sa.Text(), server_default="", nullable=False))
    op.add_column("sessions", sa.Column("interrupted_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "interrupted_at")
    op.drop_column("sessions", "interrupted")
