"""Islands that no container spans"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    with op.batch_alter_table("nodes") as batch_op:
        batch_op.add_column(sa.Column("apart", sa.Boolean(), server_default="0", nullable=False))


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("nodes") as batch_op:
        batch_op.drop_column("apart")
