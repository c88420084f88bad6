"""Groups of nodes in the inventory, each with the name of the role that its nodes get. Pure."""

from __future__ import annotations

UNINSTALL = "uninstall"
EVERY_NODE = (
    "preflight",
    "kept_files",
    "pki",
    "package_source",
    "firewall",
    "time",
    "hardening",
    "logs",
    "repair",
    "restarts",
    "evidence",
    UNINSTALL,
)
GROUPS = {
    "reservoir": ("reservoir", "package_index", "repair_orders", "backup", "renewal"),
    "master": ("departure", "database", "database_backup", "log_store", "control_api", "agent_edge", "edge"),
    "worker": ("container_engine", "node_agent"),
    "storage": ("storage_server",),
    "slurm": (),
}
"""By the role of a node, what makes it that."""
STORAGE_CLIENT, STORAGE_MARKER = "storage_client", "storage_marker"
FABRIC, INFINIBAND = "fabric", "infiniband"
HEALTH, MONITORING, WAL_ARCHIVE = "health", "monitoring", "wal_archive"
NVIDIA_DRIVER = "nvidia_driver"
MUNGE, SLURM_ACCOUNTING, CLUSTER_ENGINE = "munge", "slurm_accounting", "cluster_engine"
"""These depend on more than the role."""
INTERFACES, ATTACHMENT, DETACHMENT = "interfaces", "attachment", "detachment"
"""These have a node while it joins or leaves the site."""

OF_ANSIBLE = ("all", "ungrouped")
NAMES = {
    *EVERY_NODE,
    *(group for groups in GROUPS.values() for group in groups),
    STORAGE_CLIENT,
    STORAGE_MARKER,
    FABRIC,
    INFINIBAND,
    NVIDIA_DRIVER,
    MUNGE,
    SLURM_ACCOUNTING,
    CLUSTER_ENGINE,
    HEALTH,
    MONITORING,
    WAL_ARCHIVE,
    INTERFACES,
    ATTACHMENT,
    DETACHMENT,
    *OF_ANSIBLE,
}
"""What no node may be called: Ansible takes such a name for the whole group."""
