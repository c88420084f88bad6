"""Ids of domains, which accounting tells apart, and policies that bind all people of a domain"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward: what ran before a domain was made belongs to one of the same name that there is no more."""
    op.add_column("domains", sa.Column("id", sa.Uuid(), nullable=True))
    op.execute("UPDATE domains SET id = gen_random_uuid()")
    op.alter_column("domains", "id", nullable=False)
    op.create_unique_constraint("uq_domains_id", "domains", ["id"])
    op.add_column("domains", sa.Column("policy", sa.String(20), nullable=True))
    op.create_index("ix_domains_policy", "domains", ["policy"])
    op.create_foreign_key("fk_domains_policy_user_policies", "domains", "user_policies", ["policy"], ["name"])
    op.add_column("spans", sa.Column("domain_id", sa.Uuid(), nullable=True))
    op.execute(
        "UPDATE spans SET domain_id = domains.id FROM domains "
        "WHERE spans.domain = domains.name AND spans.started_at >= domains.created_at"
    )
    op.create_index("ix_spans_domain_id", "spans", ["domain_id"])


def downgrade() -> None:
    """Go back."""
    op.drop_column("spans", "domain_id")
    op.drop_column("domains", "policy")
    op.drop_column("domains", "id")
