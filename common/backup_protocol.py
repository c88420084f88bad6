"""The protocol of API and controller about backups: which there are, what was ordered, what becomes of it. Pure."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from common.hints import hinted
from common.messages import Report, Words, else_read
from common.sentence import Sentence

MAX_BACKUPS = 2000
MAX_ORDERS = 50
LATE = timedelta(hours=26)
"""A backup a day, and time to take it and try again."""

BackupName = Annotated[
    str,
    Field(max_length=64, pattern=r"^penstock-[0-9]{8}-[0-9]{6}$"),
    hinted(Sentence("write it as the list of backups does"), Sentence("is no name of a backup")),
]


class BackupAction(StrEnum):
    """What is done: take one now, check one, or rehearse a restore of one. What replaces anything is not ordered."""

    NOW = "now"
    VERIFY = "verify"
    DRILL = "drill"


class BackupOrderState(StrEnum):
    """What has become of an order; `cancelled` is one that was called back before it began."""

    ORDERED = "ordered"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_ORDERS = frozenset({BackupOrderState.ORDERED, BackupOrderState.RUNNING})


class BackupReport(Report):
    """A backup as its record has it; `problem` says why it is not good, `ahead` that a clock was when it was taken."""

    name: BackupName
    time: AwareDatetime
    good: bool
    problem: Words = ""
    rows: int = 0
    size: int = 0
    sealed: bool = False
    copied: Annotated[str, Field(max_length=1000)] = ""
    verified: Annotated[str, Field(max_length=64)] = ""
    ahead: bool = False


class BackupOrder(Report):
    """What an administrator has ordered; without a `backup` it is about the newest good one."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    action: BackupAction
    backup: BackupName | None = None
    by: Annotated[str, Field(max_length=255)]
    ordered_at: AwareDatetime


class BackupOrderReport(BackupOrder):
    """What has become of an order: `backup` is the one that it was about, `seconds` what a restore of it took.

    Nothing waits for a state that only a later release knows.
    """

    state: Annotated[BackupOrderState, else_read(BackupOrderState.FAILED)]
    reason: Words = ""
    finished_at: AwareDatetime | None = None
    seconds: float = 0.0
