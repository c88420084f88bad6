"""Keys go with the key that made them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("api_keys", sa.Column("made_by", sa.Uuid(), nullable=True))
    op.create_foreign_key("api_keys_made_by_fkey", "api_keys", "api_keys", ["made_by"], ["id"], ondelete="CASCADE")
    op.create_index("ix_api_keys_made_by", "api_keys", ["made_by"])


def downgrade() -> None:
    """Go back."""
    op.drop_column("api_keys", "made_by")
