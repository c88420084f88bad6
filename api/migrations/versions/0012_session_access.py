"""Access to sessions: by their project, or by their owner and those who look after the project"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward: what there is stays seen by its project."""
    for table, column in (("projects", "session_access"), ("sessions", "access")):
        op.add_column(table, sa.Column(column, sa.String(16), server_default="project", nullable=False))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "access")
    op.drop_column("projects", "session_access")
