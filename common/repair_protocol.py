"""The protocol of API and controller: orders, what becomes of them, and checks of nodes without an agent. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field, FiniteFloat

from common.backup_protocol import MAX_BACKUPS, MAX_ORDERS, BackupOrder, BackupOrderReport, BackupReport
from common.check_protocol import MAX_CHECKS, CheckReport
from common.messages import Report, Words, as_told, else_read
from common.repairs import RunState

CONTROLLER = "controller.penstock"
"""The name in the controller's own certificate; no node can have one with a dot."""
CONTROLLER_PATH = "/agent/v1/repairs"
"""POST ControllerReport → ControllerReply: runs that are new or have changed, for the next one that was ordered."""
LOOK_S = 300.0
"""So often the controller looks at the nodes without an agent, and at the backups."""
SILENT_S = 4 * LOOK_S
"""After so long without a look the controller is silent."""
AWAY_S = 120.0
"""After so long without a word of the controller, orders wait for it to come back."""
MAX_RUNS = 50
MAX_NODES = 1000
MAX_COMMANDS = 100
MAX_STEPS = 5000
MAX_TASKS = 1000

Word = Annotated[str, as_told(255), Field(max_length=255)]


class StepReport(Report):
    """A look at a node, or a rung and the look after it; `tasks` say what was done."""

    node: Word
    at: AwareDatetime
    rung: Word = ""
    ok: bool = False
    evidence: Words = ""
    seconds: FiniteFloat = 0.0
    tasks: list[Words] = Field(default=[], max_length=MAX_TASKS)


class RunReport(Report):
    """What has become of a run until now, in full; nothing waits for a state that only a later release knows."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    repair: Annotated[str, Field(max_length=16)]
    by: Word
    limit: Word | None = None
    dry_run: bool = False
    agreed: bool = False
    state: Annotated[RunState, else_read(RunState.INTERRUPTED)]
    reason: Words = ""
    ordered_at: AwareDatetime
    finished_at: AwareDatetime | None = None
    tried: list[Word] = Field(default=[], max_length=MAX_STEPS)
    sick: list[Word] = Field(default=[], max_length=MAX_STEPS)
    steps: list[StepReport] = Field(default=[], max_length=MAX_STEPS)


class CommandReport(Report):
    """A command that somebody ran on the controller as root, such as `backup restore`, and that is over.

    `reason` says why it is not `ok`; one without an end was broken off. `object` is what it was about, in the words of
    the audit log.
    """

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    command: Word
    object: Word
    by: Word
    began_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    ok: bool = False
    reason: Words = ""


class NodeChecks(Report):
    """The checks of a node that has no agent; those without a `node` are of the site."""

    node: Annotated[str, Field(max_length=63)] = ""
    checks: list[CheckReport] = Field(max_length=MAX_CHECKS)


class ControllerReport(Report):
    """What the controller tells: runs and orders that are new or have changed, and whether it `wants` an order.

    After a look, `nodes` has all checks that it makes. `backups` are all that there are, None where that is as it was.
    `commands` are those of which the API has not answered that it heard; after a lost answer one comes twice.
    """

    runs: list[RunReport] = Field(default=[], max_length=MAX_RUNS)
    wants: bool = True
    nodes: list[NodeChecks] | None = Field(default=None, max_length=MAX_NODES)
    backups: list[BackupReport] | None = Field(default=None, max_length=MAX_BACKUPS)
    backup_orders: list[BackupOrderReport] = Field(default=[], max_length=MAX_ORDERS)
    commands: list[CommandReport] = Field(default=[], max_length=MAX_COMMANDS)


class RepairOrder(Report):
    """A run that an administrator has ordered."""

    id: str
    repair: str
    by: str
    limit: str | None = None
    dry_run: bool = False
    agreed: bool = False
    ordered_at: AwareDatetime


class ControllerReply(Report):
    """The next order, the oldest first: of a repair, or about a backup; None where nothing was ordered."""

    order: RepairOrder | None = None
    backup_order: BackupOrder | None = None
