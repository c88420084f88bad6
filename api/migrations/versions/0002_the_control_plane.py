"""The control plane"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:  # noqa: PLR0915 -- one step of a schema
    """Go forward."""
    op.create_table(
        "domains",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_domains")),
    )
    op.create_table(
        "login_tries",
        sa.Column("subject", sa.String(length=160), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("succeeded_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_login_tries")),
    )
    with op.batch_alter_table("login_tries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_login_tries_tried_at"), ["tried_at"], unique=False)

    op.create_table(
        "presets",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("cpu_milli", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("shm_mib", sa.BigInteger(), nullable=False),
        sa.Column("gpu_milli", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_presets")),
    )
    op.create_table(
        "spans",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("session_name", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("user_name", sa.String(length=20), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("project_name", sa.String(length=20), nullable=False),
        sa.Column("domain", sa.String(length=20), nullable=True),
        sa.Column("gpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spans")),
    )
    with op.batch_alter_table("spans", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_spans_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_spans_session_id"), ["session_id"], unique=False)
        batch_op.create_index("ix_spans_started_at", ["started_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_spans_user_id"), ["user_id"], unique=False)
        batch_op.create_index(
            "uq_spans_open",
            ["session_id"],
            unique=True,
            postgresql_where=sa.text("ended_at IS NULL"),
        )

    op.create_table(
        "user_policies",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("max_sessions", sa.Integer(), nullable=True),
        sa.Column("max_gpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("max_cpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("max_memory_mib", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_user_policies")),
    )
    op.create_table(
        "resource_groups",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("domain", sa.String(length=20), nullable=True),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("switch", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["domain"], ["domains.name"], name=op.f("fk_resource_groups_domain_domains")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_resource_groups")),
        sa.UniqueConstraint("name", name=op.f("uq_resource_groups_name")),
    )
    with op.batch_alter_table("resource_groups", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_resource_groups_domain"), ["domain"], unique=False)

    op.create_table(
        "resource_group_nodes",
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["resource_groups.id"],
            name=op.f("fk_resource_group_nodes_group_id_resource_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_resource_group_nodes_node_id_nodes"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("group_id", "node_id", name=op.f("pk_resource_group_nodes")),
    )
    with op.batch_alter_table("resource_group_nodes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_resource_group_nodes_node_id"), ["node_id"], unique=False)

    op.create_table(
        "resource_group_users",
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["resource_groups.id"],
            name=op.f("fk_resource_group_users_group_id_resource_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_resource_group_users_user_id_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("group_id", "user_id", name=op.f("pk_resource_group_users")),
    )
    with op.batch_alter_table("resource_group_users", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_resource_group_users_user_id"), ["user_id"], unique=False)

    op.create_table(
        "image_projects",
        sa.Column("image_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_image_projects_image_id_images"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_image_projects_project_id_projects"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("image_id", "project_id", name=op.f("pk_image_projects")),
    )
    with op.batch_alter_table("image_projects", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_image_projects_project_id"), ["project_id"], unique=False)

    op.create_table(
        "resource_group_projects",
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["resource_groups.id"],
            name=op.f("fk_resource_group_projects_group_id_resource_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_resource_group_projects_project_id_projects"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", "project_id", name=op.f("pk_resource_group_projects")),
    )
    with op.batch_alter_table("resource_group_projects", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_resource_group_projects_project_id"), ["project_id"], unique=False)

    op.create_table(
        "containers",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "pulling",
                "creating",
                "running",
                "exited",
                "failed",
                name="containerstatus",
                native_enum=False,
                length=16,
            ),
            nullable=True,
        ),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_containers_node_id_nodes")),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_containers_session_id_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "rank", name=op.f("pk_containers")),
    )
    with op.batch_alter_table("containers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_containers_node_id"), ["node_id"], unique=False)

    op.create_table(
        "services",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("port", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.String(length=63), nullable=False),
        sa.Column("base_path", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_services_session_id_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "port", name=op.f("pk_services")),
        sa.UniqueConstraint("base_path", name=op.f("uq_services_base_path")),
        sa.UniqueConstraint("path", name=op.f("uq_services_path")),
    )
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.add_column(sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("used_at", sa.DateTime(timezone=True), nullable=True))

    with op.batch_alter_table("gpus", schema=None) as batch_op:
        batch_op.add_column(sa.Column("island", sa.Integer(), server_default="0", nullable=False))

    with op.batch_alter_table("images", schema=None) as batch_op:
        batch_op.add_column(sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(
            sa.Column(
                "scope",
                sa.Enum("global", "projects", name="scope", native_enum=False, length=16),
                server_default="global",
                nullable=False,
            )
        )
        batch_op.add_column(
            sa.Column(
                "status",
                sa.Enum("unchecked", "pulling", "ready", "failed", name="status", native_enum=False, length=16),
                server_default="unchecked",
                nullable=False,
            )
        )
        batch_op.add_column(
            sa.Column("since", sa.DateTime(timezone=True), server_default="2000-01-01 00:00:00+00:00", nullable=False)
        )
        batch_op.add_column(sa.Column("error", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("digest", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("size", sa.BigInteger(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("user_id", sa.Uuid(), nullable=True))
        batch_op.add_column(sa.Column("user_name", sa.String(length=20), server_default=sa.text("''"), nullable=False))
        batch_op.drop_constraint(batch_op.f("uq_images_name_tag"), type_="unique")
        batch_op.create_index("ix_images_name_tag", ["name", "tag"], unique=False)
        batch_op.create_index(batch_op.f("ix_images_status"), ["status"], unique=False)
        batch_op.create_index(batch_op.f("ix_images_user_id"), ["user_id"], unique=False)
        batch_op.create_index(
            "uq_images_global_title",
            ["name", "tag"],
            unique=True,
            postgresql_where=sa.text("scope = 'global'"),
        )
        batch_op.create_foreign_key(
            batch_op.f("fk_images_user_id_users"), "users", ["user_id"], ["id"], ondelete="SET NULL"
        )

    with op.batch_alter_table("logins", schema=None) as batch_op:
        batch_op.add_column(sa.Column("used_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("address", sa.String(length=64), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("agent", sa.String(length=256), server_default=sa.text("''"), nullable=False))

    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "part",
                sa.Enum("manager", "member", name="part", native_enum=False, length=16),
                server_default="member",
                nullable=False,
            )
        )

    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "mode",
                sa.Enum("active", "maintenance", "draining", name="nodemode", native_enum=False, length=16),
                server_default="active",
                nullable=False,
            )
        )
        batch_op.add_column(sa.Column("drain_until", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("message", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("unknown_containers", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("fractions", sa.Boolean(), server_default="1", nullable=False))
        batch_op.add_column(sa.Column("nvlink", sa.Boolean(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("driver_version", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("cuda_version", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("region", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("switch", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("started_at", sa.DateTime(timezone=True), nullable=True))

    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.add_column(sa.Column("domain", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("over_quota", sa.Boolean(), server_default="1", nullable=False))
        batch_op.add_column(sa.Column("over_quota_weight", sa.BigInteger(), server_default="0", nullable=False))
        batch_op.add_column(
            sa.Column(
                "starts_at", sa.DateTime(timezone=True), server_default="2000-01-01 00:00:00+00:00", nullable=False
            )
        )
        batch_op.add_column(sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(
            sa.Column(
                "on_expiry",
                sa.Enum("stop", "finish", name="expiry", native_enum=False, length=16),
                server_default="stop",
                nullable=False,
            )
        )
        batch_op.add_column(sa.Column("training_group", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("interactive_group", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("interactive_limit_s", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("interactive_extension_s", sa.Integer(), server_default="0", nullable=False))
        batch_op.create_index(batch_op.f("ix_projects_domain"), ["domain"], unique=False)
        batch_op.create_foreign_key(
            batch_op.f("fk_projects_training_group_resource_groups"), "resource_groups", ["training_group"], ["name"]
        )
        batch_op.create_foreign_key(batch_op.f("fk_projects_domain_domains"), "domains", ["domain"], ["name"])
        batch_op.create_foreign_key(
            batch_op.f("fk_projects_interactive_group_resource_groups"),
            "resource_groups",
            ["interactive_group"],
            ["name"],
        )

    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "kind",
                sa.Enum("interactive", "training", "service", name="kind", native_enum=False, length=16),
                nullable=True,
            )
        )
        batch_op.add_column(sa.Column("priority", sa.Integer(), server_default="50", nullable=False))
        batch_op.add_column(sa.Column("preemptible", sa.Boolean(), nullable=True))
        batch_op.add_column(sa.Column("size", sa.Integer(), server_default="1", nullable=False))
        batch_op.add_column(sa.Column("cpu_milli", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("memory_mib", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("shm_mib", sa.Integer(), server_default="64", nullable=False))
        batch_op.add_column(sa.Column("preset", sa.String(length=64), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(
            sa.Column("resource_group", sa.String(length=63), server_default=sa.text("''"), nullable=False)
        )
        batch_op.add_column(sa.Column("models", sa.JSON(), nullable=True))
        batch_op.add_column(sa.Column("within", sa.String(length=16), server_default="anywhere", nullable=False))
        batch_op.add_column(sa.Column("within_required", sa.Boolean(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("local_image", sa.Boolean(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("created_by_cli", sa.Boolean(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("since", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("cause", sa.String(length=16), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("position", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("attempt", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("extended_s", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("warned_at", sa.DateTime(timezone=True), nullable=True))
    _fill_sessions()
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.alter_column("kind", existing_type=sa.String(16), nullable=False)
        batch_op.alter_column("preemptible", existing_type=sa.Boolean(), nullable=False)
        batch_op.alter_column("models", existing_type=sa.JSON(), nullable=False)
        batch_op.alter_column("since", existing_type=sa.DateTime(timezone=True), nullable=False)
        batch_op.drop_index(batch_op.f("ix_sessions_node_id"))
        batch_op.drop_constraint(batch_op.f("fk_sessions_node_id_nodes"), type_="foreignkey")
        batch_op.drop_column("interactive")
        batch_op.drop_column("node_id")
    _give_grants_a_rank()

    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "source",
                sa.Enum("local", "ldap", name="source", native_enum=False, length=16),
                server_default="local",
                nullable=False,
            )
        )
        batch_op.add_column(sa.Column("domain", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("policy", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("email", sa.String(length=254), nullable=True))
        batch_op.add_column(sa.Column("disabled", sa.Boolean(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("must_change_password", sa.Boolean(), server_default="0", nullable=False))
        batch_op.alter_column("password_hash", existing_type=sa.VARCHAR(length=255), nullable=True)
        batch_op.create_index(batch_op.f("ix_users_domain"), ["domain"], unique=False)
        batch_op.create_index(batch_op.f("ix_users_policy"), ["policy"], unique=False)
        batch_op.create_foreign_key(batch_op.f("fk_users_policy_user_policies"), "user_policies", ["policy"], ["name"])
        batch_op.create_foreign_key(batch_op.f("fk_users_domain_domains"), "domains", ["domain"], ["name"])
    _fill_presets()


def downgrade() -> None:  # noqa: PLR0915 -- one step of a schema
    """Go back; of a session of several containers only the first is kept."""
    op.execute("UPDATE users SET password_hash = '' WHERE password_hash IS NULL")
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_users_domain_domains"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("fk_users_policy_user_policies"), type_="foreignkey")
        batch_op.drop_index(batch_op.f("ix_users_policy"))
        batch_op.drop_index(batch_op.f("ix_users_domain"))
        batch_op.alter_column("password_hash", existing_type=sa.VARCHAR(length=255), nullable=False)
        batch_op.drop_column("must_change_password")
        batch_op.drop_column("disabled")
        batch_op.drop_column("email")
        batch_op.drop_column("policy")
        batch_op.drop_column("domain")
        batch_op.drop_column("source")

    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("node_id", sa.Uuid(), nullable=True))
        batch_op.add_column(sa.Column("interactive", sa.Boolean(), nullable=True))
    _restore_sessions()
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.alter_column("interactive", existing_type=sa.Boolean(), nullable=False)
        batch_op.create_foreign_key(batch_op.f("fk_sessions_node_id_nodes"), "nodes", ["node_id"], ["id"])
        batch_op.create_index(batch_op.f("ix_sessions_node_id"), ["node_id"], unique=False)
        batch_op.drop_column("warned_at")
        batch_op.drop_column("extended_s")
        batch_op.drop_column("expires_at")
        batch_op.drop_column("starts_at")
        batch_op.drop_column("attempt")
        batch_op.drop_column("position")
        batch_op.drop_column("cause")
        batch_op.drop_column("since")
        batch_op.drop_column("created_by_cli")
        batch_op.drop_column("local_image")
        batch_op.drop_column("within_required")
        batch_op.drop_column("within")
        batch_op.drop_column("models")
        batch_op.drop_column("resource_group")
        batch_op.drop_column("preset")
        batch_op.drop_column("shm_mib")
        batch_op.drop_column("memory_mib")
        batch_op.drop_column("cpu_milli")
        batch_op.drop_column("size")
        batch_op.drop_column("preemptible")
        batch_op.drop_column("priority")
        batch_op.drop_column("kind")

    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_projects_interactive_group_resource_groups"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("fk_projects_domain_domains"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("fk_projects_training_group_resource_groups"), type_="foreignkey")
        batch_op.drop_index(batch_op.f("ix_projects_domain"))
        batch_op.drop_column("interactive_extension_s")
        batch_op.drop_column("interactive_limit_s")
        batch_op.drop_column("interactive_group")
        batch_op.drop_column("training_group")
        batch_op.drop_column("on_expiry")
        batch_op.drop_column("ends_at")
        batch_op.drop_column("starts_at")
        batch_op.drop_column("over_quota_weight")
        batch_op.drop_column("over_quota")
        batch_op.drop_column("domain")

    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_column("started_at")
        batch_op.drop_column("switch")
        batch_op.drop_column("region")
        batch_op.drop_column("cuda_version")
        batch_op.drop_column("driver_version")
        batch_op.drop_column("nvlink")
        batch_op.drop_column("fractions")
        batch_op.drop_column("unknown_containers")
        batch_op.drop_column("message")
        batch_op.drop_column("drain_until")
        batch_op.drop_column("mode")

    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.drop_column("part")

    with op.batch_alter_table("logins", schema=None) as batch_op:
        batch_op.drop_column("agent")
        batch_op.drop_column("address")
        batch_op.drop_column("used_at")

    op.execute("DELETE FROM images WHERE scope <> 'global'")
    with op.batch_alter_table("images", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_images_user_id_users"), type_="foreignkey")
        batch_op.drop_index(
            "uq_images_global_title",
            postgresql_where=sa.text("scope = 'global'"),
        )
        batch_op.drop_index(batch_op.f("ix_images_user_id"))
        batch_op.drop_index(batch_op.f("ix_images_status"))
        batch_op.drop_index("ix_images_name_tag")
        batch_op.create_unique_constraint(batch_op.f("uq_images_name_tag"), ["name", "tag"])
        batch_op.drop_column("user_name")
        batch_op.drop_column("user_id")
        batch_op.drop_column("size")
        batch_op.drop_column("digest")
        batch_op.drop_column("error")
        batch_op.drop_column("since")
        batch_op.drop_column("status")
        batch_op.drop_column("scope")
        batch_op.drop_column("description")

    _take_ranks_from_grants()

    with op.batch_alter_table("gpus", schema=None) as batch_op:
        batch_op.drop_column("island")

    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.drop_column("used_at")
        batch_op.drop_column("expires_at")

    op.drop_table("services")
    with op.batch_alter_table("containers", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_containers_node_id"))

    op.drop_table("containers")
    with op.batch_alter_table("resource_group_projects", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_resource_group_projects_project_id"))

    op.drop_table("resource_group_projects")
    with op.batch_alter_table("image_projects", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_image_projects_project_id"))

    op.drop_table("image_projects")
    with op.batch_alter_table("resource_group_users", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_resource_group_users_user_id"))

    op.drop_table("resource_group_users")
    with op.batch_alter_table("resource_group_nodes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_resource_group_nodes_node_id"))

    op.drop_table("resource_group_nodes")
    with op.batch_alter_table("resource_groups", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_resource_groups_domain"))

    op.drop_table("resource_groups")
    op.drop_table("user_policies")
    with op.batch_alter_table("spans", schema=None) as batch_op:
        batch_op.drop_index("uq_spans_open", postgresql_where=sa.text("ended_at IS NULL"))
        batch_op.drop_index(batch_op.f("ix_spans_user_id"))
        batch_op.drop_index("ix_spans_started_at")
        batch_op.drop_index(batch_op.f("ix_spans_session_id"))
        batch_op.drop_index(batch_op.f("ix_spans_project_id"))

    op.drop_table("spans")
    op.drop_table("presets")
    with op.batch_alter_table("login_tries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_login_tries_tried_at"))

    op.drop_table("login_tries")
    op.drop_table("domains")


def _fill_presets() -> None:
    """The sizes of the start; administrators change and delete them as they like."""
    names = ("name", "description", "cpu_milli", "memory_mib", "shm_mib", "gpu_milli")
    rows = (
        ("small", "", 1000, 4096, 64, 0),
        ("medium", "", 2000, 6144, 1024, 0),
        ("medium-gpu", "", 2000, 6144, 1024, 1000),
        ("large", "", 4000, 8192, 1024, 0),
        ("large-gpu", "", 4000, 8192, 1024, 2000),
        ("research-gpu", "", 8000, 49152, 2048, 4500),
    )
    presets = sa.table("presets", *(sa.column(name) for name in names))
    op.bulk_insert(presets, [dict(zip(names, row, strict=True)) for row in rows])


def _fill_sessions() -> None:
    """What a session was and where it ran, in the new words: until now it had one container."""
    op.execute(
        "UPDATE sessions SET preemptible = NOT interactive, models = '[]', "
        "kind = CASE WHEN interactive THEN 'interactive' ELSE 'training' END, "
        "since = COALESCE(finished_at, started_at, scheduled_at, created_at)"
    )
    op.execute(
        "INSERT INTO containers (session_id, rank, node_id, status, error, exit_code, started_at, ports) "
        "SELECT id, 0, node_id, CASE WHEN state = 'RUNNING' THEN 'running' "
        "WHEN state IN ('TERMINATED', 'FAILED') THEN 'exited' END, '', exit_code, started_at, '{}' "
        "FROM sessions WHERE node_id IS NOT NULL"
    )


def _restore_sessions() -> None:
    op.execute("UPDATE sessions SET interactive = (kind <> 'training')")
    op.execute(
        "UPDATE sessions SET node_id = (SELECT node_id FROM containers WHERE session_id = sessions.id AND rank = 0)"
    )


def _give_grants_a_rank() -> None:
    grants = op.get_bind().execute(sa.text('SELECT session_id, "index", uuid, milli FROM grants')).all()
    op.drop_table("grants")
    op.create_table(
        "grants",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.String(length=128), nullable=False),
        sa.Column("milli", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id", "rank"],
            ["containers.session_id", "containers.rank"],
            name=op.f("fk_grants_session_id_rank_containers"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "rank", "index", name=op.f("pk_grants")),
    )
    _refill('(session_id, rank, "index", uuid, milli) VALUES (:session_id, 0, :index, :uuid, :milli)', grants)


def _take_ranks_from_grants() -> None:
    query = 'SELECT session_id, "index", uuid, milli FROM grants WHERE rank = 0'
    grants = op.get_bind().execute(sa.text(query)).all()
    op.drop_table("grants")
    op.create_table(
        "grants",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.String(length=128), nullable=False),
        sa.Column("milli", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_grants_session_id_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "index", name=op.f("pk_grants")),
    )
    _refill('(session_id, "index", uuid, milli) VALUES (:session_id, :index, :uuid, :milli)', grants)


def _refill(columns: str, grants: Sequence[sa.Row[Any]]) -> None:
    if grants:
        op.get_bind().execute(sa.text(f"INSERT INTO grants {columns}"), [row._asdict() for row in grants])
