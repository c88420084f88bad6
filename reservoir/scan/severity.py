"""Severity of advisories: by CVSS vectors, else by the words of their database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from cvss import CVSS2, CVSS3, CVSS4, CVSSError

from reservoir.scan.osv import Advisory, Affected, Severity

Level = Literal["none", "low", "medium", "high", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
CVSS = {"CVSS_V2": CVSS2, "CVSS_V3": CVSS3, "CVSS_V4": CVSS4}
# what databases say instead of a vector: GitHub, Red Hat and its relatives, SUSE, Debian's urgency, Ubuntu's priority
WORDS: dict[str, Level] = {
    "critical": "critical",
    "important": "high",
    "high": "high",
    "moderate": "medium",
    "medium": "medium",
    "low": "low",
    "negligible": "low",
    "unimportant": "none",
    "none": "none",
}


@dataclass(frozen=True, order=True)
class Rating:
    """A level by its place in LEVELS, -1 where nothing is known, and the CVSS score where there is one."""

    rank: int = -1
    score: float = -1.0

    @property
    def level(self) -> Level | Literal["unknown"]:
        """Return the level in words."""
        return LEVELS[self.rank] if self.rank >= 0 else "unknown"


def rate(advisory: Advisory, affected: Affected) -> Rating:
    """Return the severity for one package: the worst vector, else the database's word, else unknown.

    Malware is critical, whatever is said of it: nobody rates it. A vector that cannot be read may say more than
    anything below what blocks by default.
    """
    if advisory.malware:
        return Rating(LEVELS.index("critical"))
    worst, unread = Rating(), False
    for stated in (affected.severity, advisory.severity):
        ratings = list(map(_vector, stated))
        unread = unread or any(
            severity.type in CVSS and rating.rank < 0 for severity, rating in zip(stated, ratings, strict=True)
        )
        worst = max([worst, *ratings])
        if worst.rank >= 0 and not unread:
            return worst
    specific = (affected.ecosystem_specific, affected.database_specific, advisory.database_specific)
    words = [_word(place.get(key)) for place in specific if place for key in ("severity", "urgency")]
    if not unread:
        return next((word for word in words if word.rank >= 0), Rating())
    said = max([worst, *words])
    return said if said.rank >= LEVELS.index("high") else Rating()


def _vector(severity: Severity) -> Rating:
    """Return what a severity says; one in no known notation says nothing."""
    if severity.type not in CVSS:
        return _word(severity.score)
    try:
        score = float(CVSS[severity.type](severity.score).scores()[0])
    except CVSSError:
        return Rating()
    limits = (0.0, 3.9, 6.9, 8.9)
    return Rating(sum(score > limit for limit in limits), score)


def _word(word: Any) -> Rating:
    level = WORDS.get(word.lower()) if isinstance(word, str) else None
    return Rating(LEVELS.index(level)) if level else Rating()
