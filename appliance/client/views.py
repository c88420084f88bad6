"""Answers of the API; times are ISO 8601. Written by `python -m tools.client_types`."""

from __future__ import annotations

from typing import Any, TypedDict

from appliance.client.words import (
    Access,
    BackupAction,
    BackupOrderState,
    By,
    CheckState,
    ContainerStatus,
    Enforcement,
    Expiry,
    KeyScope,
    Kind,
    Language,
    NodeMode,
    NodeState,
    NoticeLevel,
    RunState,
    State,
    Status,
    TopologyLevel,
    UserRole,
    UserSource,
    Visibility,
    VolumeState,
)


class AccountingRow(TypedDict):
    """What ran for one user, project or domain ("" for the site itself); `sessions` counts each session once.

    One that is `deleted` may have the name of another that is there. `id` tells them apart; the total has none.

    `session_seconds` is how long they ran, `gpu_seconds` that time multiplied by the GPUs that they held. For
    `covered_gpu_seconds` of these it is known how busy the GPUs were, which comes to `busy_gpu_seconds`. `cost`
    has two digits behind the point, rounded from an exact sum; the total is rounded by itself, and may be other
    than the sum of the rows by half a hundredth for each. It is None where the site has no prices.
    """

    id: str | None
    name: str
    deleted: bool
    sessions: int
    session_seconds: float
    gpu_seconds: float
    covered_gpu_seconds: float
    busy_gpu_seconds: float
    cost: str | None


class Accounting(TypedDict):
    """Accounting of a period: what ran before and after it does not count, what still runs counts up to now.

    Of what is older than its details are kept, the days count that begin in the period (UTC). Costs are in
    `currency` (ISO 4217), by the prices of now for the whole period; None where the site has no prices.
    """

    starts_at: str
    ends_at: str
    by: By
    currency: str | None
    rows: list[AccountingRow]
    total: AccountingRow


class ApiKey(TypedDict):
    """A key as it is shown later: `prefix` are its first characters, `used_at` is right to the minute.

    `made_by` is the id of the key that made it, and whose end is its own.
    """

    id: str
    name: str
    prefix: str
    scope: KeyScope
    made_by: str | None
    created_at: str
    expires_at: str | None
    used_at: str | None


class ArgumentTest(TypedDict):
    """A test of one argument of a system call: it is one of `values`, or has any of `bits`; exactly one of both is
    set.

    Only the lower 32 bits of the argument count: the kernel reads no more of most of them, and programs of 32 bits
    have no more.
    """

    argument: int
    values: list[int]
    bits: int


class AuditChange(TypedDict):
    """What changed in one row: of a table `kind`, named by `subject`; the audited values before and after."""

    kind: str
    subject: dict[str, str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditEntry(TypedDict):
    """A line of the audit log: who did what, from where, on what, with what result.

    `credential` is the key or login used, `domains` are those that it concerns, `nodes` those that it touched,
    where its session runs, too. `left_out` counts the attempts like this one that are not told, and `objects`
    are what these were about, as far as they are named. `previous` and `mac` are the codes of the line before
    and of this one.
    """

    seq: int
    time: str
    user: str
    role: str
    domain: str | None
    credential: str
    address: str
    action: str
    method: str
    object: str
    project: str | None
    result: str
    status: int
    reason: str
    request: str
    domains: list[str]
    nodes: list[str]
    changes: list[AuditChange]
    more_changes: bool
    left_out: int
    objects: list[str]
    deleted: dict[str, Any] | None
    previous: str
    mac: str


class AuditFile(TypedDict):
    """A file of the audit log: its day in UTC, and its size in bytes."""

    day: str
    size: int


class AuditFinding(TypedDict):
    """Something that is not as it was written: in the file of a day, a line of it; 0 is the file as a whole."""

    day: str
    line: int
    what: str


class AuditVerification(TypedDict):
    """What the whole log comes to: how many lines are as they were written, the last number, and what is wrong.

    It was held against what the nodes have seen of it, but for those that are `unheard`.
    """

    ok: bool
    lines: int
    last: int
    findings: list[AuditFinding]
    more_findings: int
    deleted: list[dict[str, Any]]
    unheard: list[str]


class BackupOrder(TypedDict):
    """An order and what has become of it; `seconds` are those of the way back."""

    id: str
    action: BackupAction
    backup: str | None
    by: str
    state: BackupOrderState
    reason: str
    ordered_at: str
    finished_at: str | None
    seconds: float


class Backup(TypedDict):
    """A backup of the site; `problem` says why it is not good, `ahead` that a clock was when it was taken.

    It was `verified` when its dump was last loaded and counted. `copied` is the folder of its copy.
    """

    name: str
    time: str
    good: bool
    problem: str
    rows: int
    size: int
    sealed: bool
    copied: str
    verified: str
    ahead: bool


class CheckChange(TypedDict):
    """A check that came to another state; `before` is null for one that was new."""

    number: int
    at: str
    node: str
    check: str
    thing: str
    before: CheckState | None
    after: CheckState
    evidence: str


class Check(TypedDict):
    """A check of a `node`, or of the site where it names none; `thing` is what of it the check is about.

    `hint` says what to do where it is not well, `repair` which repair is for it. `closes` says that the node takes
    nothing new because of it. Until `acknowledged_until` nobody is told of it.
    """

    id: str
    node: str
    check: str
    thing: str
    name: str
    state: CheckState
    evidence: str
    hint: str
    repair: str
    since: str
    closes: bool
    acknowledged_until: str | None
    acknowledged_by: str
    comment: str


class Container(TypedDict):
    """One container of a session, and the GPUs that it holds on its node.

    `enforcement` is how its shares are held, null before it is known and without a GPU; `warning` is what its agent
    finds wrong while it runs. `nccl` is what NCCL told in its log when it began, where it told something.
    """

    rank: int
    node: str
    status: ContainerStatus | None
    error: str
    exit_code: int | None
    enforcement: Enforcement | None
    warning: str
    nccl: Nccl | None
    gpus: list[GpuShare]


class Controller(TypedDict):
    """The controller of the site: whether it takes orders, when it was last heard of, and whether it is `away`.

    While it is, what was ordered waits.
    """

    takes_orders: bool
    heard_at: str | None
    away: bool


class Csrf(TypedDict):
    """What a page sends as X-CSRF-Token whenever it changes something with the cookie."""

    csrf_token: str


class DeniedCall(TypedDict):
    """A system call that a sandbox denied `count` times, from `first_at` to `last_at`, to processes of one name.

    `rank` is the container, `pid` the last process as the container numbers them, `effect` the error that the call
    ended with, or `killed`. What came from too many processes or calls is put together under `*`.
    """

    rank: int
    call: str
    process: str
    pid: int
    effect: str
    first_at: str
    last_at: str
    count: int


class DeniedCalls(TypedDict):
    """What the sandbox of a session denied: `denied` calls in all, and the newest series that are still kept."""

    session_id: str
    sandbox: str
    denied: int
    series: list[DeniedCall]


class Domain(TypedDict):
    """A domain; users, projects and resource groups name it. `quota_milli` limits the quotas of its projects."""

    name: str
    description: str
    quota_milli: int | None
    shares: bool
    over_quota_weight: int | None
    limit_milli: int | None
    policy: str | None
    created_at: str


class Done(TypedDict):
    """Answer of an action that returns nothing else."""

    done: bool


class DryRun(TypedDict):
    """What would become of sessions that nobody has submitted: `starting` of them would get their places at once.

    Of the first one that would wait, `reason` says why, `cause` for programs, and `position` is its place in the
    queue from 1. The amounts are those of one container, completed by its preset and by what the site gives.
    """

    starting: int
    waiting: int
    reason: str
    cause: str
    position: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    disk_mib: int


class GpuShare(TypedDict):
    """The share of one GPU that a session has, in milli-GPU; of a MIG device by its `profile` it is the whole device.

    `memory_mib` is how much of the GPU's memory belongs to it; null, as `model` is empty, where the node has that
    GPU no more.
    """

    index: int
    uuid: str
    milli: int
    memory_mib: int | None
    model: str
    profile: str


class Gpu(TypedDict):
    """A GPU of a node, or a MIG device: a slice of the GPU `parent` by its `profile`, which goes to one container.

    `capacity_milli` is how much of a GPU it is, 1,000 unless it is a slice; `used_milli` is what sessions hold of
    that. `enforcement` is how shares of it are held, `accelerator` the plugin of the agent that found it.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    simulated: bool
    island: int
    accelerator: str
    enforcement: Enforcement
    parent: str
    profile: str
    capacity_milli: int
    used_milli: int


class GroupRoom(TypedDict):
    """What there is in a resource group where one's work may run, and what of it nobody holds.

    Of its nodes those count that take new sessions; what sessions have of cores or memory without a limit counts as
    nothing. The group without a name is of the nodes that are in none.
    """

    name: str
    nodes: int
    gpu_milli: int
    free_gpu_milli: int
    cpu_milli: int
    free_cpu_milli: int
    memory_mib: int
    free_memory_mib: int


class Group(TypedDict):
    """A resource group; `nodes` are named for it, `present` are all that belong to it now.

    Who may not see other people finds only their own name and projects in it.
    """

    id: str
    name: str
    description: str
    purpose: str
    domain: str | None
    nodes: list[str]
    present: list[str]
    gpu_model: str
    switch: str
    region: str
    open: bool
    users: list[str]
    projects: list[str]
    created_at: str


class Hca(TypedDict):
    """A port of an HCA of a node by its `name` (`mlx5_0:1`); `link_layer` is InfiniBand, or Ethernet for RoCE.

    `numa_node` is where it is plugged in, null where the machine does not say; `distances` leads from the index of
    a GPU to how far that is by the kernel's measure, where 10 is the same NUMA node.
    """

    name: str
    rate_gbps: float
    link_layer: str
    state: str
    numa_node: int | None
    distances: dict[str, int]


class Health(TypedDict):
    """The API answers, and its database answers and can write."""

    status: str
    version: str


class Image(TypedDict):
    """An image that sessions may use; `projects` are those of its projects that the caller sees.

    `status` says whether a node could pull it, since when, and `error` why not; `digest` is that of its registry,
    or its id at the container engine where it comes from none, `size` in bytes.
    """

    id: str
    name: str
    tag: str
    reference: str
    description: str
    visibility: Visibility
    projects: list[str]
    status: Status
    since: str
    error: str
    digest: str
    size: int
    created_by: str
    created_at: str


class Interface(TypedDict):
    """A network interface of a node; `speed_mbps` is null where the kernel does not know it."""

    name: str
    addresses: list[str]
    up: bool
    speed_mbps: int | None
    mtu: int


class Limit(TypedDict):
    """What one's sessions hold of one kind together, the most that they may have, and what is left of it.

    `of` is `sessions`, `gpu_milli`, `cpu_milli` or `memory_mib`. `waiting` is what counts beside what is held: of
    sessions that wait, and of containers that elastic ones may still get. null is no limit: each of `held` and
    `waiting` is null where one of those that it counts has none.
    """

    of: str
    held: int | None
    waiting: int | None
    most: int | None
    left: int | None


class LogEntry(TypedDict):
    """A line that a service of a node wrote, and what it is about; where that is several things, they are all told.

    `node` has sent it, by its certificate. `host` is the name that the line itself gives, where that is another
    one.
    """

    time: str
    node: str
    host: str
    unit: str
    level: str
    message: str
    request: str
    session: str
    user: str


class Login(TypedDict):
    """A browser in which the caller is signed in; `current` marks this one, `used_at` is right to the minute."""

    id: str
    address: str
    agent: str
    created_at: str
    used_at: str | None
    expires_at: str
    current: bool


class MetricsPoint(TypedDict):
    """What a container used of a GPU in the time that begins `at`: the most memory and processes, the mean of the
    rest.

    `busy_permille` is the part of the GPU's time in which it worked for the container, null where nobody can tell.
    """

    at: str
    memory_mib: int
    busy_permille: int | None
    processes: int


class MetricsSeries(TypedDict):
    """What the container `rank` of a session used of one GPU; times without a point had no sample."""

    rank: int
    uuid: str
    points: list[MetricsPoint]


class Metrics(TypedDict):
    """What a session used of its GPUs; each point stands for `step_s` seconds."""

    session_id: str
    since: str
    until: str
    step_s: int
    series: list[MetricsSeries]


class Mount(TypedDict):
    """A `volume` of the project by its name, or a folder of the node, which a session sees at `target`."""

    volume: str | None
    source: str | None
    target: str
    read_only: bool


class Nccl(TypedDict):
    """What the log of a container says of the ways that NCCL took between GPUs, each with the line that says so.

    `p2p` is the direct way in a node, `ib` InfiniBand (or RoCE) between nodes, `gdrdma` GPUDirect RDMA by that.
    Null, and mostly without a line, is what its log does not tell.
    """

    version: str
    p2p: bool | None
    p2p_line: str
    ib: bool | None
    ib_line: str
    gdrdma: bool | None
    gdrdma_line: str


class NewApiKey(TypedDict):
    """A key as it is shown once, when it is made."""

    id: str
    name: str
    prefix: str
    scope: KeyScope
    made_by: str | None
    created_at: str
    expires_at: str | None
    used_at: str | None
    key: str


class Node(TypedDict):
    """A node. `endpoint` is where its agent answers, `message` what is wrong with the node or what became of it.

    `fractions` says whether its GPUs may be shared (fGPU), `enforcement` how the shares are held: the weakest kind
    among its GPUs. `enforcement_pending` says which kind follows and what it waits for. `gpu_milli` is what its
    GPUs are together, `used_milli` what sessions hold of them. `unknown_containers` are of sessions that the
    database does not know: they are left alone, and the node takes nothing new. `orphaned_milli` is what these,
    and others that no session has there, hold of each GPU by its UUID: it is given to nobody until they are
    gone. Nor takes anything new one whose clock is wrong: `clock_offset_s` is how far it is ahead of the API's
    then, and 0 as long as that is within bounds. `missing_storages` says by the names of storages why it lacks
    them: it takes nothing that mounts one of these. `unhealthy` names the failing checks for which it takes
    nothing new, `withheld` says why the launcher lends nothing of it. `rdma` says whether sessions may use its
    `hcas`; `no_rdma` why not. Of its network `interfaces` the `interface` carries what its containers say to
    those of other nodes; empty: that which has its `address`, as it does where the one that was chosen is gone.
    """

    id: str
    name: str
    endpoint: str
    address: str
    port: int
    region: str
    switch: str
    state: NodeState
    mode: NodeMode
    drain_until: str | None
    message: str
    unknown_containers: int
    orphaned_milli: dict[str, int]
    clock_offset_s: int
    groups: list[str]
    agent_version: str
    engine_version: str
    driver_version: str
    cuda_version: str
    os: str
    enforcement: Enforcement
    enforcement_pending: str
    fractions: bool
    nvlink: bool
    rdma: bool
    no_rdma: str
    hcas: list[Hca]
    interfaces: list[Interface]
    interface: str
    missing_storages: dict[str, str]
    unhealthy: str
    withheld: str
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    used_milli: int
    gpus: list[Gpu]
    sessions: int
    started_at: str | None
    last_seen: str | None


class Notice(TypedDict):
    """What everybody is told while it is in force; `texts` are for readers of these languages."""

    id: str
    level: NoticeLevel
    text: str
    texts: dict[str, str]
    starts_at: str
    ends_at: str | None


class Overview(TypedDict):
    """The site at a glance. Of `node_count` nodes, `open_count` take new sessions; GPUs are in milli-GPU.

    Of the `gpu_milli` that there are, sessions hold `used_milli`, of which `idle_milli` did nothing for ten
    minutes, and sessions that wait ask for `waiting_milli`. `sessions` counts those that a list has, by state.
    Of `projects` those that hold most come first, of `running` the newest, of `waiting` those whose turn is
    next, and of `nodes` those that take nothing new; of sessions and nodes there are so many as were asked for.
    """

    node_count: int
    open_count: int
    gpu_milli: int
    used_milli: int
    idle_milli: int
    waiting_milli: int
    sessions: dict[str, int]
    projects: list[ProjectTotals]
    running: list[SessionEntry]
    waiting: list[QueueEntry]
    nodes: list[Node]


class PeriodView(TypedDict):
    """From when to when a project may be used; an end of null is open."""

    starts_at: str
    ends_at: str | None


class Policy(TypedDict):
    """A policy; GPUs in milli-GPU, CPU in thousandths of a core, memory in MiB."""

    name: str
    description: str
    max_sessions: int | None
    max_gpu_milli: int | None
    max_cpu_milli: int | None
    max_memory_mib: int | None
    created_at: str


class Preset(TypedDict):
    """A preset."""

    name: str
    description: str
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    gpu_milli: int
    enforcement: Enforcement


class ProjectShare(TypedDict):
    """A project that one may use now: its quota of GPUs, and what its sessions hold of them, in milli-GPU."""

    name: str
    quota_milli: int
    used_milli: int
    over_quota: bool


class ProjectTotals(TypedDict):
    """What a project has of GPUs, in milli-GPU: its quota, what its sessions hold, are idle with, and wait for."""

    name: str
    domain: str | None
    quota_milli: int
    used_milli: int
    idle_milli: int
    waiting_milli: int
    waiting: int


class Project(TypedDict):
    """A project; `used_milli` is what its sessions hold now, `had_milli` what they had lately beyond its quota.

    That is an average, as far as the site has counted it (`spare_half_life_s`).

    `active` says whether it is in its period: outside it nothing can be submitted and its quota counts as 0.
    `warnings` says where the quotas of the site's projects come to more than its GPUs.
    """

    id: str
    name: str
    description: str
    domain: str | None
    quota_milli: int
    used_milli: int
    over_quota: bool
    over_quota_weight: int | None
    limit_milli: int | None
    cpu_quota_milli: int | None
    cpu_limit_milli: int | None
    memory_quota_mib: int | None
    memory_limit_mib: int | None
    period: PeriodView
    active: bool
    on_expiry: Expiry
    managers: list[str]
    members: list[str]
    training_group: str | None
    interactive_group: str | None
    interactive_limit_s: int
    interactive_extension_s: int
    min_runtime_s: int | None
    session_access: Access
    had_milli: int
    warnings: list[str]
    created_at: str


class QueueEntry(TypedDict):
    """A session that waits for the scheduler, for nodes of its resource group where it names one.

    `gpu_milli` is for one of its `replicas`.
    """

    id: str
    name: str
    project: str
    user: str
    kind: Kind
    group: str
    priority: int
    replicas: int
    gpu_milli: int
    position: int
    cause: str
    reason: str
    created_at: str
    starts_at: str | None


class RepairRunDetail(TypedDict):
    """A run with its steps so far."""

    id: str
    repair: str
    by: str
    limit: str | None
    dry_run: bool
    agreed: bool
    state: RunState
    reason: str
    ordered_at: str
    finished_at: str | None
    tried: list[str]
    sick: list[str]
    steps: list[Step]


class RepairRun(TypedDict):
    """A run without its steps; `sick` are the nodes that had the symptom, `tried` those on which rungs were climbed."""

    id: str
    repair: str
    by: str
    limit: str | None
    dry_run: bool
    agreed: bool
    state: RunState
    reason: str
    ordered_at: str
    finished_at: str | None
    tried: list[str]
    sick: list[str]


class Repair(TypedDict):
    """A repair: the words by which its issue is known, what is looked at, and its rungs in order."""

    id: str
    symptoms: list[str]
    looks_for: str
    rungs: list[Rung]


class Revoked(TypedDict):
    """Answer to the end of a key: how many keys went with it, that were made with it or with one of these."""

    done: bool
    with_it: int


class Rung(TypedDict):
    """A rung of a ladder, and what it does."""

    rung: str
    does: str


class SandboxRule(TypedDict):
    """System calls that a sandbox denies, with all arguments or only with those that pass every test of `when`.

    The call ends with the error `errno`, or, where the rule `ends` it, the process is killed.
    """

    calls: list[str]
    when: list[ArgumentTest]
    errno: str
    ends: bool


class Sandbox(TypedDict):
    """A sandbox; who may not see all projects finds only those of their own."""

    id: str
    name: str
    description: str
    rules: list[SandboxRule]
    site_wide: bool
    projects: list[str]
    images: list[str]
    created_at: str


class Service(TypedDict):
    """A port of a session; `url` is where its users reach it, null at a site whose edge offers no apps."""

    port: int
    url: str | None


class SessionEntry(TypedDict):
    """A session of a list; the amounts are for one of its `replicas`.

    With `p2p` its GPUs reach each other by NVLink, with false (not null) they may not use it; with `rdma` its
    containers meet over InfiniBand. `reason` says why it waits, or why it failed; for programs there is `cause`
    while it waits, and `position`, its place in the queue from 1. `node` and `gpus` are those of its first
    container. `attempt` counts how often it was put back into the queue. An elastic one has `min_replicas` to
    `max_replicas` containers (else 0 and 0), and `replicas` by now. It is stopped when it has run for `limit_s`
    (0: it asked for no limit), or as its project says: `expires_at` is when its time limit ends it, which its
    owner has put off by `extended_s` so far. `ports` are what it asked for, also after its end. `urls` are
    those of `services`, `url` is the first of them.

    Its shares are held by `enforcement` or a stronger kind. `held_milli` is what it takes of GPUs with all
    containers together, 0 before it has its places; a MIG device counts whole. While its share is being
    changed, `resize_milli` is what each container shall have. Its programs run in the `sandbox` of this name
    (empty: in none), which has `denied` them so many system calls so far. `access` says who sees it: its
    `project`, or as `private` its owner alone of the project's members.
    """

    id: str
    name: str
    project: str
    user: str
    access: Access
    image: str
    kind: Kind
    priority: int
    preemptible: bool
    replicas: int
    min_replicas: int
    max_replicas: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    disk_mib: int
    enforcement: Enforcement
    held_milli: int
    resize_milli: int | None
    preset: str
    group: str
    gpu_models: list[str]
    ports: list[int]
    within: TopologyLevel
    within_required: bool
    p2p: bool | None
    rdma: bool
    local_image: bool
    sandbox: str
    denied: int
    created_by_cli: bool
    state: State
    reason: str
    cause: str
    position: int
    attempt: int
    created_at: str
    starts_at: str | None
    scheduled_at: str | None
    started_at: str | None
    limit_s: int
    expires_at: str | None
    extended_s: int
    finished_at: str | None
    exit_code: int | None
    node: str | None
    gpus: list[GpuShare]
    containers: list[Container]
    services: list[Service]
    url: str | None
    urls: list[str]


class SessionEvent(TypedDict):
    """A session came to a `state` in its `attempt`; `reason`, and `cause` for programs, say why.

    `exit_code` is that of its containers, where they have ended.
    """

    at: str
    state: State
    reason: str
    cause: str
    attempt: int
    exit_code: int | None


class Session(TypedDict):
    """A session with its command line, which may be long, its mounts, and the names of its variables.

    `interrupted` says why it was put back into the queue the last time, at `interrupted_at`. Of an elastic one that
    runs `not_grown` says why it gets no further containers just now, where it could have more.
    """

    id: str
    name: str
    project: str
    user: str
    access: Access
    image: str
    kind: Kind
    priority: int
    preemptible: bool
    replicas: int
    min_replicas: int
    max_replicas: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    shm_mib: int
    disk_mib: int
    enforcement: Enforcement
    held_milli: int
    resize_milli: int | None
    preset: str
    group: str
    gpu_models: list[str]
    ports: list[int]
    within: TopologyLevel
    within_required: bool
    p2p: bool | None
    rdma: bool
    local_image: bool
    sandbox: str
    denied: int
    created_by_cli: bool
    state: State
    reason: str
    cause: str
    position: int
    attempt: int
    created_at: str
    starts_at: str | None
    scheduled_at: str | None
    started_at: str | None
    limit_s: int
    expires_at: str | None
    extended_s: int
    finished_at: str | None
    exit_code: int | None
    node: str | None
    gpus: list[GpuShare]
    containers: list[Container]
    services: list[Service]
    url: str | None
    urls: list[str]
    command: list[str] | None
    args: list[str]
    environment: list[str]
    mounts: list[Mount]
    interrupted: str
    interrupted_at: str | None
    not_grown: str


class Settings(TypedDict):
    """How GPUs are divided here, in milli-GPU."""

    version: str
    fgpu_per_gpu: int
    steps_per_fgpu: int
    fgpu_milli: int
    step_milli: int
    largest_milli: int


class SignedIn(TypedDict):
    """Who has signed in. A page sends `csrf_token` as X-CSRF-Token whenever it changes something with the cookie."""

    csrf_token: str
    id: str
    name: str
    role: UserRole
    source: UserSource
    role_source: UserSource
    directory_id: str | None
    domain: str | None
    policy: str | None
    email: str | None
    language: Language | None
    disabled: bool
    must_change_password: bool
    created_at: str


class Step(TypedDict):
    """A look at a node, or a rung and the look after it; `tasks` say what was done."""

    node: str
    at: str
    rung: str
    ok: bool
    evidence: str
    seconds: float
    tasks: list[str]


class Summary(TypedDict):
    """What somebody runs, newest first, and may run. There are `more` sessions than those that are named."""

    sessions: list[SessionEntry]
    more: bool
    limits: list[Limit]
    groups: list[GroupRoom]
    projects: list[ProjectShare]


class TimelineSeries(TypedDict):
    """What one user, project or domain held of GPUs in each step of a period, on average, in milli-GPU."""

    id: str | None
    name: str
    deleted: bool
    gpu_milli: list[int]


class Timeline(TypedDict):
    """What was held over time; each number stands for `step_s` seconds from `starts_at` on.

    Of what is older than its details are kept, nothing is told.
    """

    starts_at: str
    ends_at: str
    by: By
    step_s: int
    series: list[TimelineSeries]


class User(TypedDict):
    """A user; the password never leaves the database.

    `directory_id` is the entry of the directory to which the account belongs, `role_source` who gives its role. The
    console speaks its `language`; where that is null, the browser's.
    """

    id: str
    name: str
    role: UserRole
    source: UserSource
    role_source: UserSource
    directory_id: str | None
    domain: str | None
    policy: str | None
    email: str | None
    language: Language | None
    disabled: bool
    must_change_password: bool
    created_at: str


class UtilizationStep(TypedDict):
    """What the site's GPUs did in so many seconds, on average, in milli-GPU.

    `gpu_milli` there were, None where nobody knows; `held_milli` were held by sessions. For `covered_milli` of
    these it is known how busy they were, and `busy_milli` were.
    """

    seconds: float
    gpu_milli: int | None
    held_milli: int
    covered_milli: int
    busy_milli: int


class Utilization(TypedDict):
    """What the site's GPUs did over time; the steps are of `step_s` seconds each, and the last ends now.

    A period begins with an hour. Of what is older than its details are kept, nothing is told.
    """

    starts_at: str
    ends_at: str
    step_s: int
    steps: list[UtilizationStep]


class Volume(TypedDict):
    """A volume. `project` is null for one whose project is gone, which `former_project` was.

    `folder` is where it is below the root of its `storage`. `used_mib` is how much is in it and `limit_mib` how
    much may be, as the storage told at `measured_at`; null where it cannot. `sessions` that have not ended and
    that the caller sees mount it. One that is `deleting` goes away with its files; `reason` says why that has
    not come to its end.
    """

    id: str
    name: str
    project: str | None
    former_project: str
    domain: str | None
    storage: str
    folder: str
    state: VolumeState
    reason: str
    used_mib: int | None
    limit_mib: int | None
    measured_at: str | None
    sessions: int
    created_by: str
    created_at: str


class WaitFigures(TypedDict):
    """How long was waited for what began: of so many, the median, the 95th percentile and the longest, in seconds.

    The percentiles are waits that there were, at most 5 % and 50 ms above what all waits in order would give; of
    none there are none.
    """

    count: int
    median_s: float | None
    p95_s: float | None
    longest_s: float | None


class WaitRow(TypedDict):
    """The waits of one user, project or domain, and apart from these how many sessions wait now, how long at most."""

    count: int
    median_s: float | None
    p95_s: float | None
    longest_s: float | None
    id: str | None
    name: str
    deleted: bool
    waiting: int
    oldest_s: float | None


class Waits(TypedDict):
    """How long sessions waited before they ran, by when they began to; `steps` are of `step_s` seconds each.

    A wait begins when a session is submitted or goes back to the queue, or when it may start at the earliest. Of
    what is older than its details are kept, nothing is told.
    """

    starts_at: str
    ends_at: str
    by: By
    step_s: int
    rows: list[WaitRow]
    total: WaitRow
    steps: list[WaitFigures]
