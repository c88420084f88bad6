"""Hours of GPUs: a row for all samples of an hour that is over"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

# the parts of a sample as api/resources/metrics/packing.py has them
_UNPACK = """
INSERT INTO gpu_samples (session_id, rank, uuid, at_s, memory_mib, busy_permille, processes)
SELECT session_id, rank, uuid, hour * 3600::bigint + (sample & 4095), sample >> 39,
    NULLIF(sample >> 12 & 2047, 2047), sample >> 23 & 65535
FROM gpu_hours, unnest(samples) AS sample ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "gpu_hours",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.String(length=128), nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("samples", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_gpu_hours_session_id_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "rank", "uuid", "hour", name=op.f("pk_gpu_hours")),
    )
    op.create_index("ix_gpu_hours_hour", "gpu_hours", ["hour"], postgresql_using="brin")
    op.drop_index("ix_gpu_samples_at_s", table_name="gpu_samples")


def downgrade() -> None:
    """Go back."""
    op.create_index("ix_gpu_samples_at_s", "gpu_samples", ["at_s"])
    op.execute(_UNPACK)
    op.drop_table("gpu_hours")
