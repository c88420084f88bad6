"""Bodies that the API takes; times are ISO 8601 with a zone. Written by `python -m tools.client_types`."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from appliance.client.views import SandboxRule
from appliance.client.words import (
    Access,
    BackupAction,
    Enforcement,
    Expiry,
    KeyScope,
    Kind,
    Language,
    NodeMode,
    NoticeLevel,
    TopologyLevel,
    UserRole,
    UserSource,
)


class AccountChange(TypedDict):
    """What people change of their own account; a `language` of null is that of the browser."""

    language: Language | None


class AcknowledgementRequest(TypedDict):
    """Until when nobody is told of a check, and why."""

    until: str
    comment: NotRequired[str]


class ApiKeyRequest(TypedDict):
    """A key to make; its name says where it is used, such as on which machine. It holds for `days`, or for ever.

    `scope` is what it is good for: `read`, `submit` (work with sessions, too), or `all` that its user may do. A key
    that is made with a key does not end after that one, and without `days` together with it.
    """

    name: str
    days: NotRequired[int | None]
    scope: NotRequired[KeyScope]


class BackupOrderRequest(TypedDict):
    """What to do: take one now, verify one or rehearse a restore of it; without a `backup` of the newest good one."""

    action: BackupAction
    backup: NotRequired[str | None]


class BatchRequest(TypedDict):
    """Equal sessions to submit, all or none: `count` 3 makes NAME-1, NAME-2 and NAME-3."""

    name: str
    project: str
    image: str
    kind: NotRequired[Kind | None]
    interactive: NotRequired[bool]
    preset: NotRequired[str | None]
    gpu_milli: NotRequired[int | None]
    cpu_milli: NotRequired[int | None]
    memory_mib: NotRequired[int | None]
    shm_mib: NotRequired[int | None]
    large_shm: NotRequired[bool]
    disk_mib: NotRequired[int | None]
    replicas: NotRequired[int]
    max_replicas: NotRequired[int | None]
    gpu_models: NotRequired[list[str]]
    enforcement: NotRequired[Enforcement | None]
    group: NotRequired[str | None]
    within: NotRequired[TopologyLevel]
    within_required: NotRequired[bool]
    p2p: NotRequired[bool | None]
    rdma: NotRequired[bool]
    priority: NotRequired[int | None]
    preemptible: NotRequired[bool | None]
    starts_at: NotRequired[str | None]
    limit_s: NotRequired[int | None]
    local_image: NotRequired[bool]
    command: NotRequired[list[str] | None]
    args: NotRequired[list[str]]
    environment: NotRequired[dict[str, str]]
    ports: NotRequired[list[int]]
    pvcs: NotRequired[list[PvcRequest]]
    volumes: NotRequired[list[VolumeRequest]]
    access: NotRequired[Access | None]
    created_by_cli: NotRequired[bool]
    count: int


class DomainChange(TypedDict):
    """What to change of a domain; what is left out stays. null takes a limit, the weight or the policy away."""

    description: NotRequired[str]
    quota_milli: NotRequired[int | None]
    shares: NotRequired[bool]
    over_quota_weight: NotRequired[int | None]
    limit_milli: NotRequired[int | None]
    policy: NotRequired[str | None]


class DomainRequest(TypedDict):
    """A domain to create. `quota_milli` limits the quotas of its projects together, in milli-GPU; null: no limit.

    Where it `shares`, its projects have these together in any case, and share inside of it what is spare: by its
    `over_quota_weight` (null: its quota; 0: what nobody with a part of it wants), up to `limit_milli` in all
    (null: no limit). `policy` is the user policy of its people, but for those whom an administrator of the site
    has given another one.
    """

    name: str
    description: NotRequired[str]
    quota_milli: NotRequired[int | None]
    shares: NotRequired[bool]
    over_quota_weight: NotRequired[int | None]
    limit_milli: NotRequired[int | None]
    policy: NotRequired[str | None]


class DryRunRequest(TypedDict):
    """What to submit if it were meant: `count` equal sessions, or one."""

    name: str
    project: str
    image: str
    kind: NotRequired[Kind | None]
    interactive: NotRequired[bool]
    preset: NotRequired[str | None]
    gpu_milli: NotRequired[int | None]
    cpu_milli: NotRequired[int | None]
    memory_mib: NotRequired[int | None]
    shm_mib: NotRequired[int | None]
    large_shm: NotRequired[bool]
    disk_mib: NotRequired[int | None]
    replicas: NotRequired[int]
    max_replicas: NotRequired[int | None]
    gpu_models: NotRequired[list[str]]
    enforcement: NotRequired[Enforcement | None]
    group: NotRequired[str | None]
    within: NotRequired[TopologyLevel]
    within_required: NotRequired[bool]
    p2p: NotRequired[bool | None]
    rdma: NotRequired[bool]
    priority: NotRequired[int | None]
    preemptible: NotRequired[bool | None]
    starts_at: NotRequired[str | None]
    limit_s: NotRequired[int | None]
    local_image: NotRequired[bool]
    command: NotRequired[list[str] | None]
    args: NotRequired[list[str]]
    environment: NotRequired[dict[str, str]]
    ports: NotRequired[list[int]]
    pvcs: NotRequired[list[PvcRequest]]
    volumes: NotRequired[list[VolumeRequest]]
    access: NotRequired[Access | None]
    created_by_cli: NotRequired[bool]
    count: NotRequired[int]


class Extension(TypedDict):
    """How many seconds to put off the end of a session that has a time limit."""

    seconds: int


class GroupChange(TypedDict):
    """What to change of a resource group; what is left out stays. Lists replace those that are.

    `add_users` and the like change one list by those names, whatever else is in it. A domain of null makes it the
    site's.
    """

    description: NotRequired[str | None]
    purpose: NotRequired[str | None]
    nodes: NotRequired[list[str] | None]
    gpu_model: NotRequired[str | None]
    switch: NotRequired[str | None]
    region: NotRequired[str | None]
    open: NotRequired[bool | None]
    users: NotRequired[list[str] | None]
    projects: NotRequired[list[str] | None]
    add_nodes: NotRequired[list[str]]
    remove_nodes: NotRequired[list[str]]
    add_users: NotRequired[list[str]]
    remove_users: NotRequired[list[str]]
    add_projects: NotRequired[list[str]]
    remove_projects: NotRequired[list[str]]
    domain: NotRequired[str | None]


class GroupRequest(TypedDict):
    """A resource group to create.

    Its nodes are `nodes`, and every one that is all of what is given of `gpu_model` (words of the model's name,
    such as `v100`), `switch` and `region`; new nodes join by themselves. An `open` group is for everybody,
    another one for `users` and the members of `projects`; one of a `domain` is for its users only.
    """

    name: str
    description: NotRequired[str]
    purpose: NotRequired[str]
    nodes: NotRequired[list[str]]
    gpu_model: NotRequired[str]
    switch: NotRequired[str]
    region: NotRequired[str]
    open: NotRequired[bool]
    users: NotRequired[list[str]]
    projects: NotRequired[list[str]]
    domain: NotRequired[str | None]


class HandOver(TypedDict):
    """To which project a volume goes, and what it is called there; left out: as before."""

    project: str
    name: NotRequired[str | None]


class ImageRequest(TypedDict):
    """An image to offer: `name` and `tag` are what people write, `reference` is what the container engine pulls.

    It is for `projects` only, or global where there are none, which takes an administrator.
    """

    name: str
    tag: str
    reference: str
    description: NotRequired[str]
    projects: NotRequired[list[str]]


class LoginRequest(TypedDict):
    """Who signs in. The rules of names and passwords are not applied here: a wrong one is simply wrong."""

    name: str
    password: str


class ModeRequest(TypedDict):
    """What is wanted of a node. While it is `draining`, people have `drain_timeout_s` to save their work."""

    mode: NodeMode
    drain_timeout_s: NotRequired[int]


class NewPasswordRequest(TypedDict):
    """The password with which a user replaces the one that an administrator has made."""

    password: str


class NewVolume(TypedDict):
    """A volume to create for a project."""

    name: str
    project: str


class NodeChange(TypedDict):
    """What of a node is changed: the network interface by which its containers meet those of other nodes, by its name.

    An empty one is that which has the node's `address`.
    """

    interface: str


class NoticeRequest(TypedDict):
    """What to tell everybody: `text`, or where the reader's language has one, that of `texts`.

    It is told from `starts_at` on (null: at once) up to `ends_at` (null: until it is ended).
    """

    level: NotRequired[NoticeLevel]
    text: str
    texts: NotRequired[dict[str, str]]
    starts_at: NotRequired[str | None]
    ends_at: NotRequired[str | None]


class PasswordRequest(TypedDict):
    """A new password."""

    password: str


class Period(TypedDict):
    """When a project may be used: from `starts_at` (left out: now) up to `ends_at`; null there is an open end."""

    starts_at: NotRequired[str | None]
    ends_at: str | None


class PolicyChange(TypedDict):
    """What to change of a policy; what is left out stays, null takes a limit away."""

    description: NotRequired[str]
    max_sessions: NotRequired[int | None]
    max_gpu_milli: NotRequired[int | None]
    max_cpu_milli: NotRequired[int | None]
    max_memory_mib: NotRequired[int | None]


class PolicyRequest(TypedDict):
    """A policy to create: what a user's live sessions may hold together; what is left out or null has no limit."""

    description: NotRequired[str]
    max_sessions: NotRequired[int | None]
    max_gpu_milli: NotRequired[int | None]
    max_cpu_milli: NotRequired[int | None]
    max_memory_mib: NotRequired[int | None]
    name: str


class PresetChange(TypedDict):
    """What to change of a preset; what is left out stays, and so do the sessions that were submitted with it."""

    description: NotRequired[str | None]
    cpu_milli: NotRequired[int | None]
    memory_mib: NotRequired[int | None]
    shm_mib: NotRequired[int | None]
    gpu_milli: NotRequired[int | None]
    enforcement: NotRequired[Enforcement | None]


class PresetRequest(TypedDict):
    """A preset to create, for one container: thousandths of a core, MiB, milli-GPU; no CPU is no limit.

    Its GPU share is held by `enforcement` or a stronger kind.
    """

    name: str
    description: NotRequired[str]
    cpu_milli: NotRequired[int]
    memory_mib: NotRequired[int]
    shm_mib: NotRequired[int]
    gpu_milli: NotRequired[int]
    enforcement: NotRequired[Enforcement]


class ProjectChange(TypedDict):
    """What to change of a project; what is left out stays. `managers` and `members` replace their lists.

    `add_members` and the like change one list by those names, whatever else is in it. null takes a resource group,
    a limit, a weight, or a quota of CPU or memory away, and lets `min_runtime_s` be what the site says.
    `session_access` is for sessions that are submitted from then on.
    """

    quota_milli: NotRequired[int | None]
    period: NotRequired[Period | None]
    description: NotRequired[str | None]
    managers: NotRequired[list[str] | None]
    members: NotRequired[list[str] | None]
    add_managers: NotRequired[list[str]]
    remove_managers: NotRequired[list[str]]
    add_members: NotRequired[list[str]]
    remove_members: NotRequired[list[str]]
    over_quota: NotRequired[bool | None]
    over_quota_weight: NotRequired[int | None]
    limit_milli: NotRequired[int | None]
    cpu_quota_milli: NotRequired[int | None]
    cpu_limit_milli: NotRequired[int | None]
    memory_quota_mib: NotRequired[int | None]
    memory_limit_mib: NotRequired[int | None]
    on_expiry: NotRequired[Expiry | None]
    training_group: NotRequired[str | None]
    interactive_group: NotRequired[str | None]
    interactive_limit_s: NotRequired[int | None]
    interactive_extension_s: NotRequired[int | None]
    min_runtime_s: NotRequired[int | None]
    session_access: NotRequired[Access | None]


class ProjectRequest(TypedDict):
    """A project to create; `quota_milli` is in milli-GPU, and a hard cap unless `over_quota`.

    `over_quota_weight` is its part of what is spare (null: its quota; 0: what nobody with a part of it wants).
    `training_group` and `interactive_group` are resource groups that its sessions keep to.
    `interactive_limit_s` ends interactive sessions after so many seconds (0: never), `interactive_extension_s`
    is how much an owner may add in total. No session is reclaimed before it ran `min_runtime_s` (null: as the
    site says). With `over_quota` they hold no more than `limit_milli` together (null: no limit). Of CPU and
    memory the same holds where there is a quota of these (null: none, and no limit), guaranteed to sessions
    without GPUs. Sessions that are submitted without an access of their own have its `session_access`.
    """

    name: str
    quota_milli: int
    period: Period
    description: NotRequired[str]
    managers: NotRequired[list[str]]
    members: NotRequired[list[str]]
    over_quota: NotRequired[bool]
    over_quota_weight: NotRequired[int | None]
    limit_milli: NotRequired[int | None]
    cpu_quota_milli: NotRequired[int | None]
    cpu_limit_milli: NotRequired[int | None]
    memory_quota_mib: NotRequired[int | None]
    memory_limit_mib: NotRequired[int | None]
    on_expiry: NotRequired[Expiry]
    training_group: NotRequired[str | None]
    interactive_group: NotRequired[str | None]
    interactive_limit_s: NotRequired[int]
    interactive_extension_s: NotRequired[int]
    min_runtime_s: NotRequired[int | None]
    session_access: NotRequired[Access]
    domain: NotRequired[str | None]


class PvcRequest(TypedDict):
    """A folder of the project on the shared storage, seen in the session at `target`."""

    name: str
    target: str
    read_only: NotRequired[bool]


class RepairRequest(TypedDict):
    """How to run a repair: on the one node `limit` or on all, as a dry run, and whether it may end sessions."""

    limit: NotRequired[str | None]
    dry_run: NotRequired[bool]
    agreed: NotRequired[bool]


class SandboxChange(TypedDict):
    """What to change of a sandbox; what is left out stays, and lists replace those that are.

    It holds for sessions that are submitted from now on.
    """

    description: NotRequired[str | None]
    rules: NotRequired[list[SandboxRule] | None]
    site_wide: NotRequired[bool | None]
    projects: NotRequired[list[str] | None]
    images: NotRequired[list[str] | None]


class SandboxRequest(TypedDict):
    """A sandbox to create: what its `rules` deny, and whose sessions it is for.

    A session has the sandbox of its image, else that of its project, else the one that is `site_wide`. `images` are
    global ones, by name and tag. Without rules a sandbox denies nothing, and spares its sessions a wider one.
    """

    name: str
    description: NotRequired[str]
    rules: NotRequired[list[SandboxRule]]
    site_wide: NotRequired[bool]
    projects: NotRequired[list[str]]
    images: NotRequired[list[str]]


class SessionChange(TypedDict):
    """What to change: the `priority` of a session that waits, `gpu_milli` of each container of one that runs, or
    `access`: who sees it.
    """

    priority: NotRequired[int | None]
    gpu_milli: NotRequired[int | None]
    access: NotRequired[Access | None]


class SessionRequest(TypedDict):
    """A session to submit: one or more equal containers that start together.

    `kind` is training unless it is said; `interactive` is short for that kind. `gpu_milli` (milli-GPU; 0: none,
    then `cpu_milli` is needed), `cpu_milli` (thousandths of a core, 0: no limit), `memory_mib`, `shm_mib`
    (`/dev/shm`, part of the memory) and `disk_mib` (what it writes beside its mounts) are for one of the
    `replicas`. What is left out comes from the `preset`; memory and disk that it does not say go by the GPUs,
    or by the cores where there are none. `large_shm` gives half of the memory. Only on GPUs of one of the
    `gpu_models` it runs, and only where shares are held by `enforcement` or a stronger kind; a `group` is a
    resource group that it keeps to. With `p2p` its GPUs reach each other by NVLink, and without (false, not
    null) they do not use it; with `rdma` its containers meet over InfiniBand. With `max_replicas` it starts
    with its `replicas`, gets more while there is room, and gives these up before others lose anything for it.
    `within` is the part of the network that the containers share where they can, with `within_required` in any
    case. A higher `priority` goes first within the project. A `preemptible` session may use what other projects
    leave idle, and is put back into the queue when they ask for it. It waits at least until `starts_at`, and is
    stopped when it has run for `limit_s`: what is known to end may start before what others wait for. `command`
    None means the image's own, and `args` follow it. Each of `ports` gets an address at the site's edge.
    `image` is one that the project may use, or with `local_image` a reference that is on the node already. The
    command line says so by `created_by_cli`. `access` says who sees it: its `project`, or as `private` its
    owner alone of the project's members; where it is left out the project's `session_access` says so.
    """

    name: str
    project: str
    image: str
    kind: NotRequired[Kind | None]
    interactive: NotRequired[bool]
    preset: NotRequired[str | None]
    gpu_milli: NotRequired[int | None]
    cpu_milli: NotRequired[int | None]
    memory_mib: NotRequired[int | None]
    shm_mib: NotRequired[int | None]
    large_shm: NotRequired[bool]
    disk_mib: NotRequired[int | None]
    replicas: NotRequired[int]
    max_replicas: NotRequired[int | None]
    gpu_models: NotRequired[list[str]]
    enforcement: NotRequired[Enforcement | None]
    group: NotRequired[str | None]
    within: NotRequired[TopologyLevel]
    within_required: NotRequired[bool]
    p2p: NotRequired[bool | None]
    rdma: NotRequired[bool]
    priority: NotRequired[int | None]
    preemptible: NotRequired[bool | None]
    starts_at: NotRequired[str | None]
    limit_s: NotRequired[int | None]
    local_image: NotRequired[bool]
    command: NotRequired[list[str] | None]
    args: NotRequired[list[str]]
    environment: NotRequired[dict[str, str]]
    ports: NotRequired[list[int]]
    pvcs: NotRequired[list[PvcRequest]]
    volumes: NotRequired[list[VolumeRequest]]
    access: NotRequired[Access | None]
    created_by_cli: NotRequired[bool]


class UserChange(TypedDict):
    """What to change of a user; what is left out stays. Only `domain`, `policy` and `email` may be null: none.

    A new password ends the user's logins and revokes the user's keys. So does a `directory_id` of null, which gives
    the account to whoever signs in next by its name in the directory. A role that is given here is not the
    directory's any more, until `role_source` is.
    """

    password: NotRequired[str]
    role: NotRequired[UserRole]
    disabled: NotRequired[bool]
    must_change_password: NotRequired[bool]
    domain: NotRequired[str | None]
    policy: NotRequired[str | None]
    email: NotRequired[str | None]
    role_source: NotRequired[UserSource]
    directory_id: NotRequired[None]


class UserRequest(TypedDict):
    """A user to create. Whom an administrator of a domain creates belongs to that domain."""

    name: str
    password: str
    role: NotRequired[UserRole]
    domain: NotRequired[str | None]
    policy: NotRequired[str | None]
    email: NotRequired[str | None]
    must_change_password: NotRequired[bool]


class VolumeRequest(TypedDict):
    """A folder of the node that the administrator has opened to sessions, seen in the session at `target`."""

    source: str
    target: str
    read_only: NotRequired[bool]
