"""Networks of gangs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "gang_networks",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_gang_networks")),
        sa.UniqueConstraint("session_id", "attempt", name=op.f("uq_gang_networks_session_id_attempt")),
    )
    op.create_table(
        "gang_nodes",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_gang_nodes_node_id_nodes"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["number"], ["gang_networks.number"], name=op.f("fk_gang_nodes_number_gang_networks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", "node_id", name=op.f("pk_gang_nodes")),
    )
    op.create_index(op.f("ix_gang_nodes_node_id"), "gang_nodes", ["node_id"])
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("network", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_column("network")
    op.drop_index(op.f("ix_gang_nodes_node_id"), table_name="gang_nodes")
    op.drop_table("gang_nodes")
    op.drop_table("gang_networks")
