"""Averages of what projects had lately beyond their quotas, and when these were counted"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("projects", sa.Column("had_milli", sa.Float(), nullable=False, server_default="0"))
    op.add_column("projects", sa.Column("had_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Go back."""
    op.drop_column("projects", "had_at")
    op.drop_column("projects", "had_milli")
