"""The audit log: what people did, and, noted by triggers in the same transaction, what that changed"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

AUDITED = {
    "api_keys": "name, prefix, scope, expires_at, user_id",
    "domains": "name, description, quota_milli, policy",
    "image_projects": "image_id, project_id",
    "images": "name, tag, reference, description, visibility, user_name",
    "logins": "user_id, expires_at, address",
    "memberships": "project_id, user_id, role",
    "nodes": "name, mode, drain_until",
    "presets": "name, description, cpu_milli, memory_mib, shm_mib, gpu_milli, enforcement",
    "projects": "name, description, domain, quota_milli, over_quota, over_quota_weight, starts_at, ends_at, on_expiry, "
    "training_group, interactive_group, interactive_limit_s, interactive_extension_s, session_access",
    "resource_group_nodes": "group_id, node_id",
    "resource_group_projects": "group_id, project_id",
    "resource_group_users": "group_id, user_id",
    "resource_groups": "name, description, purpose, domain, gpu_model, switch, region, open",
    "sandbox_images": "sandbox_id, image_id",
    "sandbox_projects": "sandbox_id, project_id",
    "sandboxes": "name, description, rules, site_wide",
    "sessions": "name, project_id, user_name, access, image, reference, kind, priority, preemptible, replicas, "
    "gpu_milli, cpu_milli, memory_mib, shm_mib, disk_mib, enforcement, resize_milli, preset, resource_group, sandbox, "
    "local_image, state, expires_at, starts_at",
    "user_policies": "name, description, max_sessions, max_gpu_milli, max_cpu_milli, max_memory_mib",
    "users": "name, role, source, role_source, domain, policy, email, disabled, must_change_password",
    "volumes": "name, project_id, former_project, domain, storage, state, limit_mib",
}

# What a row is called stands in it, or in those that it names. What goes with its parent is told by the parent alone.
_FUNCTIONS = """
CREATE FUNCTION audited_values(whole jsonb, columns text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_object_agg(key, value) FROM jsonb_each(whole) WHERE key = ANY (columns)
$$;
CREATE FUNCTION audited_subject(whole jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'name', whole -> 'name',
        'tag', whole -> 'tag',
        'domain', COALESCE(whole ->> 'domain', (SELECT domain FROM projects WHERE id = (whole ->> 'project_id')::uuid),
                           (SELECT domain FROM users WHERE id = (whole ->> 'user_id')::uuid)),
        'project', (SELECT name FROM projects WHERE id = (whole ->> 'project_id')::uuid),
        'user', (SELECT name FROM users WHERE id = (whole ->> 'user_id')::uuid),
        'node', (SELECT name FROM nodes WHERE id = (whole ->> 'node_id')::uuid),
        'group', (SELECT name FROM resource_groups WHERE id = (whole ->> 'group_id')::uuid),
        'image', (SELECT name || ':' || tag FROM images WHERE id = (whole ->> 'image_id')::uuid),
        'sandbox', (SELECT name FROM sandboxes WHERE id = (whole ->> 'sandbox_id')::uuid)
    ))
$$;
CREATE FUNCTION note_audited_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_values jsonb := audited_values(to_jsonb(OLD), TG_ARGV);
    new_values jsonb := audited_values(to_jsonb(NEW), TG_ARGV);
    same text[];
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT array_agg(key) INTO same FROM jsonb_each(old_values) WHERE value IS NOT DISTINCT FROM new_values -> key;
        old_values := old_values - COALESCE(same, '{}');
        new_values := new_values - COALESCE(same, '{}');
        IF old_values = '{}'::jsonb THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO audit_changes (transaction, kind, subject, before, after) VALUES (
        pg_current_xact_id()::text::bigint, TG_TABLE_NAME, audited_subject(to_jsonb(COALESCE(NEW, OLD))),
        old_values, new_values
    );
    RETURN NULL;
END
$$
"""
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    number = sa.Column("number", sa.BigInteger(), sa.Identity(always=True), primary_key=True)
    op.create_table(
        "audit_events",
        number._copy(),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("transaction", sa.BigInteger(), index=True),
        sa.Column("entry", JSONB(), nullable=False),
    )
    op.create_table(
        "audit_changes",
        number._copy(),
        sa.Column("transaction", sa.BigInteger(), nullable=False, index=True),
        sa.Column("kind", sa.String(63), nullable=False),
        sa.Column("subject", JSONB(), nullable=False),
        sa.Column("before", JSONB()),
        sa.Column("after", JSONB()),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.execute(_FUNCTIONS)
    for table, columns in AUDITED.items():
        names = ", ".join(f"'{name}'" for name in columns.split(", "))
        op.execute(
            f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON {table} "
            f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
        )


def downgrade() -> None:
    """Go back."""
    for table in AUDITED:
        op.execute(f"DROP TRIGGER note_audited_change ON {table}")
    for function in ("note_audited_change()", "audited_subject(jsonb)", "audited_values(jsonb, text[])"):
        op.execute(f"DROP FUNCTION {function}")
    for table in ("audit_head", "audit_changes", "audit_events"):
        op.drop_table(table)
