"""Pages of sessions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LISTED = sa.text("state <> 'TERMINATED'")
_INDEXES = {
    "ix_sessions_created_at_id": ["created_at", "id"],
    "ix_sessions_project_id_created_at_id": ["project_id", "created_at", "id"],
}


def upgrade() -> None:
    """Go forward."""
    for name, columns in _INDEXES.items():
        op.create_index(name, "sessions", columns, postgresql_where=_LISTED)


def downgrade() -> None:
    """Go back."""
    for name in _INDEXES:
        op.drop_index(name, table_name="sessions", postgresql_where=_LISTED)
