"""Waits: how long each span was waited for"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    # who serves writes sessions before spans: in the other order both would wait for each other
    op.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
    op.add_column("spans", sa.Column("waited_s", sa.Double(), nullable=True))


def downgrade() -> None:
    """Go back."""
    op.drop_column("spans", "waited_s")
