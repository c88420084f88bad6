"""What the log of a container tells of the ways that NCCL took between GPUs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("containers", sa.Column("nccl", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False))


def downgrade() -> None:
    """Go back."""
    op.drop_column("containers", "nccl")
