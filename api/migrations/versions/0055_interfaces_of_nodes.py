"""Nodes: their network interfaces, and the one that carries what the containers of sessions say to each other"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("nodes", sa.Column("interfaces", JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb")))
    op.add_column("nodes", sa.Column("interface", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.add_column("sessions", sa.Column("interfaces", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")))


def downgrade() -> None:
    """Go back."""
    op.drop_column("sessions", "interfaces")
    op.drop_column("nodes", "interface")
    op.drop_column("nodes", "interfaces")
