"""Words of the API that have a few values. Written by `python -m tools.client_types`."""

from __future__ import annotations

from typing import Literal

Access = Literal["project", "private"]
"""Who sees a session: its project, or beside its owner only who looks after the project, the domain, the site."""

AfterProject = Literal["keep", "delete", "hand-over"]
"""What becomes of a project's volumes when it is deleted: kept without a project, deleted, handed over."""

BackupAction = Literal["now", "verify", "drill"]
"""What is done: take one now, check one, or rehearse a restore of one. What replaces anything is not ordered."""

BackupOrderState = Literal["ordered", "running", "done", "failed", "cancelled"]
"""What has become of an order; `cancelled` is one that was called back before it began."""

By = Literal["user", "project", "domain"]
"""What a report adds up by."""

CheckState = Literal["ok", "warn", "fail", "unknown"]
"""What a check came to. `unknown` means that it could not be looked at, which is not good either."""

ContainerStatus = Literal["pulling", "creating", "running", "exited", "failed"]
"""Where a container stands, as its agent sees it."""

Enforcement = Literal["driver", "mig", "shim", "mps", "none"]
"""A kind of enforcement, from the strongest to none.

`driver`: memory limits per container by NVIDIA's driver. `mig`: slices of the hardware. `shim`: our preload
library. `mps`: limits per client of CUDA's multi-process service. `none`: shares are accounted for, not held.
"""

Expiry = Literal["stop", "finish"]
"""What happens to the sessions that run when a project's period ends: they are stopped, or may finish."""

KeyScope = Literal["read", "submit", "all"]
"""What an API key is good for: to read, to work with sessions too, or all that its user may do; narrowest first."""

Kind = Literal["interactive", "training", "service"]
"""What a session is for: a person at work, a program that runs to its end, or one that answers others."""

Language = Literal["en", "ko", "ja", "zh", "th"]
"""The languages in which the console speaks."""

NodeMode = Literal["active", "maintenance", "draining"]
"""What an administrator wants of a node: `draining` ends what runs on it, `maintenance` only takes nothing new."""

NodeState = Literal["ready", "unready", "lost"]
"""Whether a node's agent reports; a `lost` one has not for a while, an `unready` one says why it starts nothing."""

NoticeLevel = Literal["info", "warning", "outage"]
"""How much a notice matters: it informs, warns of what comes, or tells what does not work now."""

RunState = Literal[
    "ordered", "running", "healthy", "repaired", "rehearsed", "stopped", "refused", "interrupted", "cancelled"
]
"""What has become of a run.

It is `healthy` where no node had the symptom, `repaired` where none has it any more, `rehearsed` after a dry run
that found it, `stopped` where a ladder did not help, `refused` where a rule forbade it before anything was done,
`interrupted` where it ended without a word, and `cancelled` where it was called back before it began.
"""

State = Literal["PENDING", "SCHEDULED", "PREPARING", "RUNNING", "TERMINATING", "TERMINATED", "FAILED"]
"""Where a session stands."""

Status = Literal["unchecked", "pulling", "ready", "failed"]
"""Whether an image is known to be there: a node tries to pull it."""

TopologyLevel = Literal["anywhere", "switch", "node", "island"]
"""The smallest part of the network that the containers of one workload must, or should, share."""

UserRole = Literal["admin", "auditor", "member"]
"""What a user is everywhere: an admin changes, an auditor reads, a member does what the projects allow."""

UserSource = Literal["local", "ldap"]
"""Who knows a user's password: this site, or its directory (LDAP)."""

Visibility = Literal["global", "projects"]
"""Who may use an image: every project, or those that it was registered for."""

VolumeState = Literal["ready", "retained", "deleting"]
"""Where a volume stands: its project's, kept after its project went, or on its way out with its files."""
