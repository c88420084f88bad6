"""Bodies of the repair endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.resources.schemas import NODE_NAME, Request, View
from common.repairs import RunState


class RungView(View):
    """A rung of a ladder, and what it does."""

    rung: str
    does: str


class RepairView(View):
    """A repair: the words by which its issue is known, what is looked at, and its rungs in order."""

    id: str
    symptoms: list[str]
    looks_for: str
    rungs: list[RungView]


class ControllerView(View):
    """The controller of the site: whether it takes orders, when it was last heard of, and whether it is `away`.

    While it is, what was ordered waits.
    """

    takes_orders: bool
    heard_at: datetime | None
    away: bool


class RepairRequest(Request):
    """How to run a repair: on the one node `limit` or on all, as a dry run, and whether it may end sessions."""

    limit: Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9-]+$"), NODE_NAME] | None = None
    dry_run: bool = False
    agreed: bool = False


class StepView(View):
    """A look at a node, or a rung and the look after it; `tasks` say what was done."""

    node: str
    at: datetime
    rung: str
    ok: bool
    evidence: str
    seconds: float
    tasks: list[str]


class RepairRunView(View):
    """A run without its steps; `sick` are the nodes that had the symptom, `tried` those on which rungs were climbed."""

    id: UUID
    repair: str
    by: str
    limit: str | None
    dry_run: bool
    agreed: bool
    state: RunState
    reason: str
    ordered_at: datetime
    finished_at: datetime | None
    tried: list[str]
    sick: list[str]


class RepairRunDetailView(RepairRunView):
    """A run with its steps so far."""

    steps: list[StepView]
