"""The requests that asked for sessions, which their launches name"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("sessions", sa.Column("request_id", sa.String(64), server_default=sa.text("''"), nullable=False))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "request_id")
