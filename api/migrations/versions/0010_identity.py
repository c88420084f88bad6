"""Accounts that belong to entries of the directory, who gives their roles, and scopes of API keys"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward: the directory goes on to give the roles of its people."""
    op.add_column("users", sa.Column("directory_id", sa.String(64)))
    op.create_unique_constraint("uq_users_directory_id", "users", ["directory_id"])
    op.add_column("users", sa.Column("role_source", sa.String(16), server_default="local", nullable=False))
    op.execute("UPDATE users SET role_source = source")
    op.add_column("api_keys", sa.Column("scope", sa.String(16), server_default="all", nullable=False))


def downgrade() -> None:
    """Go back."""
    op.drop_column("api_keys", "scope")
    op.drop_column("users", "role_source")
    op.drop_column("users", "directory_id")
