"""Volumes: the folders of projects get rows, and those of projects to come ids in place of names"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward: folders of the projects that there are have their names, whether anything knows of them or not."""
    op.add_column("projects", sa.Column("named_folders", sa.Boolean(), server_default="0", nullable=False))
    op.execute("UPDATE projects SET named_folders = true")
    op.create_table(
        "volumes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(20), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("former_project", sa.String(20), nullable=False),
        sa.Column("domain", sa.String(20), nullable=True),
        sa.Column("storage", sa.String(63), nullable=False),
        sa.Column("folder", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("used_mib", sa.BigInteger(), nullable=True),
        sa.Column("limit_mib", sa.BigInteger(), nullable=True),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_by", sa.String(20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
        sa.UniqueConstraint("storage", "folder", name="uq_volumes_storage_folder"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_volumes_project_id_projects", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["domain"], ["domains.name"], name="fk_volumes_domain_domains", ondelete="SET NULL"),
    )
    ready, deleting = sa.text("state = 'ready'"), sa.text("state = 'deleting'")
    op.create_index(
        "uq_volumes_name", "volumes", ["project_id", "storage", "name"], unique=True, postgresql_where=ready
    )
    op.create_index("ix_volumes_deleting", "volumes", ["id"], postgresql_where=deleting)
    op.create_index("ix_volumes_project_id", "volumes", ["project_id"])
    op.create_index("ix_volumes_domain", "volumes", ["domain"])
    op.create_table(
        "session_volumes",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("volume_id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "volume_id", name="pk_session_volumes"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_session_volumes_session_id_sessions", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name="fk_session_volumes_volume_id_volumes", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_session_volumes_volume_id", "session_volumes", ["volume_id"])


def downgrade() -> None:
    """Go back: what has an id for a folder is not found by its name any more."""
    op.drop_table("session_volumes")
    op.drop_table("volumes")
    op.drop_column("projects", "named_folders")
