"""Sessions: how often their places were not lent, and when they are tried again; the id of the installation"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("sessions", sa.Column("refusals", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("tries_at", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "installation",
        sa.Column("is_own", sa.Boolean(), primary_key=True, server_default=sa.true()),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("is_own", name="one"),
    )


def downgrade() -> None:
    """Go back."""
    op.drop_table("installation")
    op.drop_column("sessions", "tries_at")
    op.drop_column("sessions", "refusals")
