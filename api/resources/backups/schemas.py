"""Bodies of the backup endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import model_validator

from api.resources.schemas import Request, View
from common.backup_protocol import BackupAction, BackupName, BackupOrderState
from common.sentence import Sentence


class BackupView(View):
    """A backup of the site; `problem` says why it is not good, `ahead` that a clock was when it was taken.

    It was `verified` when its dump was last loaded and counted. `copied` is the folder of its copy.
    """

    name: str
    time: datetime
    good: bool
    problem: str
    rows: int
    size: int
    sealed: bool
    copied: str
    verified: str
    ahead: bool


class BackupOrderRequest(Request):
    """What to do: take one now, verify one or rehearse a restore of it; without a `backup` of the newest good one."""

    action: BackupAction
    backup: BackupName | None = None

    @model_validator(mode="after")
    def _about_one(self) -> Self:
        if self.action is BackupAction.NOW and self.backup is not None:
            raise ValueError(Sentence("a backup that is taken now has no name yet"))
        return self


class BackupOrderView(View):
    """An order and what has become of it; `seconds` are those of the way back."""

    id: UUID
    action: BackupAction
    backup: str | None
    by: str
    state: BackupOrderState
    reason: str
    ordered_at: datetime
    finished_at: datetime | None
    seconds: float
