"""Shares that hold"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "gpu_samples",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.String(length=128), nullable=False),
        sa.Column("at_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("busy_permille", sa.Integer(), nullable=True),
        sa.Column("processes", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_gpu_samples_session_id_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "rank", "uuid", "at_s", name=op.f("pk_gpu_samples")),
    )
    op.create_index(op.f("ix_gpu_samples_at_s"), "gpu_samples", ["at_s"])
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("enforcement_pending", sa.Text(), server_default=sa.text("''"), nullable=False))
    with op.batch_alter_table("gpus", schema=None) as batch_op:
        batch_op.add_column(sa.Column("accelerator", sa.Text(), server_default="nvidia", nullable=False))
        batch_op.add_column(sa.Column("enforcement", sa.Text(), server_default="none", nullable=False))
        batch_op.add_column(sa.Column("parent", sa.String(length=128), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("profile", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("capacity_milli", sa.Integer(), server_default="1000", nullable=False))
    with op.batch_alter_table("presets", schema=None) as batch_op:
        batch_op.add_column(sa.Column("enforcement", sa.String(length=16), server_default="none", nullable=False))
    with op.batch_alter_table("containers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("enforcement", sa.String(length=16), nullable=True))
        batch_op.add_column(sa.Column("warning", sa.Text(), server_default=sa.text("''"), nullable=False))
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("enforcement", sa.String(length=16), server_default="none", nullable=False))
        batch_op.add_column(sa.Column("held_milli", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("resize_milli", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("before_milli", sa.Integer(), nullable=True))
    op.create_index(
        "ix_sessions_resize_milli",
        "sessions",
        ["resize_milli"],
        postgresql_where=sa.text("resize_milli IS NOT NULL"),
    )
    # until now everybody held just what was asked for
    op.execute(
        "UPDATE sessions SET held_milli = size * gpu_milli "
        "WHERE EXISTS (SELECT 1 FROM containers WHERE containers.session_id = sessions.id)"
    )


def downgrade() -> None:
    """Go back; samples of use and unfinished changes of shares are lost."""
    op.drop_index("ix_sessions_resize_milli", table_name="sessions")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        for column in ("before_milli", "resize_milli", "held_milli", "enforcement"):
            batch_op.drop_column(column)
    with op.batch_alter_table("containers", schema=None) as batch_op:
        batch_op.drop_column("warning")
        batch_op.drop_column("enforcement")
    with op.batch_alter_table("presets", schema=None) as batch_op:
        batch_op.drop_column("enforcement")
    with op.batch_alter_table("gpus", schema=None) as batch_op:
        for column in ("capacity_milli", "profile", "parent", "enforcement", "accelerator"):
            batch_op.drop_column(column)
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_column("enforcement_pending")
    op.drop_index(op.f("ix_gpu_samples_at_s"), table_name="gpu_samples")
    op.drop_table("gpu_samples")
