"""Retention of the audit log: which files the clock deletes, and what the log says of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from itertools import accumulate

from api.resources.audit import chain, lines
from api.resources.audit.chain import Entry
from api.resources.audit.log_files import Day
from common.settings.audit import AuditSettings

AT_ONCE = 3
"""So many files go at a look, which is one an hour: before more have gone, somebody sees the wrong clock."""
_MIB = 1 << 20


def expired(days: Sequence[Day], today: date, settings: AuditSettings) -> list[str]:
    """Return the days whose files go, oldest first: they are too old, or all files too large. The last one stays.

    Not all go at once: a clock that is ahead makes every file old. One that is dated ahead of the file after it is as
    old as that one.
    """
    oldest = f"{today - timedelta(days=settings.audit_keep_days):%Y%m%d}"
    excess = sum(day.size for day in days) - settings.audit_keep_mib * _MIB if settings.audit_keep_mib else 0
    gone = []
    dates = list(accumulate((day.day[-8:] for day in reversed(days)), min))[::-1]
    for day, date_ in zip(days[:-1], dates, strict=False):
        if date_ >= oldest and excess <= 0:
            break
        excess -= day.size
        gone.append(day.day)
    return gone[:AT_ONCE]


def deletion(extents: Iterable[Entry], time: str) -> Entry:
    """Return the entry that says of files, by their extents, that the clock deletes them: they follow each other."""
    extents = list(extents)
    told = chain.together(one for extent in extents for one in chain.deletions({"deleted": extent, "time": time}))
    *earlier, last = told
    sealed = {name: value for name, value in last.items() if name not in ("user", "time")}
    known = {"earlier": earlier} if earlier else {}
    return lines.by_itself(
        time=time,
        action="audit_expire",
        method="DELETE",
        object=f"audit/files/{sealed['day']}",
        status=200,
        deleted={**sealed, **known},
        files=[extent["day"] for extent in extents],
    )
