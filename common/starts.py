"""The start of a session: the moment before which it waits, which must not be past when it is submitted."""

from __future__ import annotations

from datetime import datetime, timedelta

from common.errors import InputError
from common.sentence import Sentence

CLOCKS_DIFFER = timedelta(minutes=5)
"""By so much the clock of who submits may be behind ours; whatever is past by less starts at once."""


def check_start(starts_at: datetime | None, now: datetime, where: str, text: str = "") -> None:
    """Refuse a start that is past, by the words in which it was asked for; raises InputError."""
    if starts_at is not None and starts_at < now - CLOCKS_DIFFER:
        said = text or starts_at.isoformat()
        hint = Sentence("write a later moment, or leave it out")
        raise InputError(Sentence("{moment} is past", moment=repr(said)), where=where, hint=hint)
