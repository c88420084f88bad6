"""Sandboxes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SITE_WIDE = sa.text("site_wide")


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("site_wide", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sandboxes")),
        sa.UniqueConstraint("name", name=op.f("uq_sandboxes_name")),
    )
    op.create_index(
        "uq_sandboxes_site_wide",
        "sandboxes",
        ["site_wide"],
        unique=True,
        postgresql_where=_SITE_WIDE,
    )
    for of in ("project", "image"):
        table = f"sandbox_{of}s"
        op.create_table(
            table,
            sa.Column(f"{of}_id", sa.Uuid(), nullable=False),
            sa.Column("sandbox_id", sa.Uuid(), nullable=False),
            sa.ForeignKeyConstraint(
                [f"{of}_id"], [f"{of}s.id"], name=op.f(f"fk_{table}_{of}_id_{of}s"), ondelete="CASCADE"
            ),
            sa.ForeignKeyConstraint(
                ["sandbox_id"], ["sandboxes.id"], name=op.f(f"fk_{table}_sandbox_id_sandboxes"), ondelete="CASCADE"
            ),
            sa.PrimaryKeyConstraint(f"{of}_id", name=op.f(f"pk_{table}")),
        )
        op.create_index(op.f(f"ix_{table}_sandbox_id"), table, ["sandbox_id"])
    op.create_table(
        "denials",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call", sa.String(length=40), nullable=False),
        sa.Column("process", sa.String(length=64), nullable=False),
        sa.Column("effect", sa.String(length=24), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_denials_session_id_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "rank", "call", "process", "effect", "first_at", name=op.f("pk_denials")),
    )
    op.create_index(op.f("ix_denials_last_at"), "denials", ["last_at"])
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sandbox", sa.String(length=20), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("sandbox_rules", sa.JSON(), nullable=True))
        batch_op.add_column(sa.Column("denied", sa.BigInteger(), server_default="0", nullable=False))
    op.execute("UPDATE sessions SET sandbox_rules = '[]'")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.alter_column("sandbox_rules", existing_type=sa.JSON(), nullable=False)


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_column("denied")
        batch_op.drop_column("sandbox_rules")
        batch_op.drop_column("sandbox")
    op.drop_index(op.f("ix_denials_last_at"), table_name="denials")
    op.drop_table("denials")
    for of in ("image", "project"):
        op.drop_index(op.f(f"ix_sandbox_{of}s_sandbox_id"), table_name=f"sandbox_{of}s")
        op.drop_table(f"sandbox_{of}s")
    op.drop_index("uq_sandboxes_site_wide", table_name="sandboxes")
    op.drop_table("sandboxes")
