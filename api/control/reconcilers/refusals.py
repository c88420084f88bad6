"""Refusals of a launcher: a session whose place is not lent waits for its next try, longer with each in a row. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from api.tables.sessions import Session, State
from common.sentence import Moment, Sentence

FIRST_S, LONGEST_S = 5, 300
"""The pause after the first refusal, and the longest: each is twice the one before."""


def refused(session: Session, why: str, at: datetime) -> dict[str, Any]:
    """Return what changes of a session whose place was not lent: it goes back to wait, and others pass it meanwhile."""
    tries_at = at + timedelta(seconds=pause_s(session.refusals))
    reason = Sentence("{why}; it is tried again at {at}", why=why, at=Moment.at(tries_at, seconds=True))
    return {
        "state": State.TERMINATING,
        "final_state": State.PENDING,
        "reason": reason,
        "cause": "",
        "refusals": session.refusals + 1,
        "tries_at": tries_at,
    }


def pause_s(refusals: int) -> int:
    """Return how long a session waits that was refused so often before."""
    # a larger exponent says nothing more
    return min(FIRST_S << min(refusals, 16), LONGEST_S)


def forgotten(session: Session) -> dict[str, Any]:
    """Return what changes of a session that has come to run."""
    return {"refusals": 0, "tries_at": None} if session.refusals else {}
