"""Nodes are heard by a count and by no clock, and say how far theirs is off"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("nodes", sa.Column("heard", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("nodes", sa.Column("clock_offset_s", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Go back."""
    op.drop_column("nodes", "clock_offset_s")
    op.drop_column("nodes", "heard")
