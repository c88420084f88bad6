"""Limit of what a session may write on its node beside its mounts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward: sessions that are there have no limit."""
    op.add_column("sessions", sa.Column("disk_mib", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "disk_mib")
