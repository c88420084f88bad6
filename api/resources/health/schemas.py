"""Bodies of the endpoints of health."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.resources.schemas import Moment, Request, Text, View
from common.checks import CheckState


class CheckView(View):
    """A check of a `node`, or of the site where it names none; `thing` is what of it the check is about.

    `hint` says what to do where it is not well, `repair` which repair is for it. `closes` says that the node takes
    nothing new because of it. Until `acknowledged_until` nobody is told of it.
    """

    id: UUID
    node: str
    check: str
    thing: str
    name: str
    state: CheckState
    evidence: str
    hint: str
    repair: str
    since: datetime
    closes: bool
    acknowledged_until: datetime | None
    acknowledged_by: str
    comment: str


class CheckChangeView(View):
    """A check that came to another state; `before` is null for one that was new."""

    number: int
    at: datetime
    node: str
    check: str
    thing: str
    before: CheckState | None
    after: CheckState
    evidence: str


class AcknowledgementRequest(Request):
    """Until when nobody is told of a check, and why."""

    until: Moment
    comment: Annotated[Text, Field(max_length=1000)] = ""
