"""Time limits of sessions, which their users give"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("sessions", sa.Column("limit_s", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "limit_s")
