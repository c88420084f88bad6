"""Indexes for the pages of all sessions, of a user's, and of a project's"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

ORDER = ["created_at", "id"]
EVERY = {"created_at_id": ORDER} | {f"{of}_created_at_id": [of, *ORDER] for of in ("project_id", "user_name")}


def upgrade() -> None:
    """Go forward."""
    op.create_index(
        *("ix_sessions_user_name_created_at_id", "sessions", ["user_name", *ORDER]),
        postgresql_where=sa.text("state <> 'TERMINATED'"),
    )
    for name, columns in EVERY.items():
        op.create_index(f"ix_sessions_every_{name}", "sessions", columns)


def downgrade() -> None:
    """Go back."""
    for name in EVERY:
        op.drop_index(f"ix_sessions_every_{name}", "sessions")
    op.drop_index("ix_sessions_user_name_created_at_id", "sessions")
