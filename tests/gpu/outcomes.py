"""What a check says: figures with what was expected and how far they may be from it, or why nothing could be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """How a figure, or all those of a check, came out; the last one counts most."""

    TOLD = "told"
    WITHIN = "within"
    NOT_JUDGED = "not judged"
    OUTSIDE = "outside"


ORDER = tuple(State)


@dataclass(frozen=True)
class Figure:
    """One number or word that was found.

    `wanted` and `tolerance` are in the unit of `got`; without `wanted` a figure is told and not judged. `bound` says on
    which side the figure may lie: "about" `wanted`, "most" or "least" that much; beyond it the tolerance still holds.
    """

    name: str
    got: float | str
    unit: str = ""
    wanted: float | str | None = None
    tolerance: float = 0.0
    bound: str = "about"
    note: str = ""

    @property
    def state(self) -> State:
        """Whether the figure lies within its tolerance."""
        if self.wanted is None:
            return State.TOLD
        if isinstance(self.wanted, str) or isinstance(self.got, str):
            return State.WITHIN if self.got == self.wanted else State.OUTSIDE
        over = self.got - self.wanted
        far = {"about": abs(over), "most": over, "least": -over}[self.bound]
        return State.WITHIN if far <= self.tolerance else State.OUTSIDE

    @property
    def expectation(self) -> str:
        """What was expected, in words."""
        if self.wanted is None:
            return "–"
        unit = f" {self.unit}" if self.unit else ""
        if isinstance(self.wanted, str):
            return self.wanted
        sign = {"about": "", "most": "at most ", "least": "at least "}[self.bound]
        room = f" ± {self.tolerance:g}" if self.tolerance else ""
        return f"{sign}{self.wanted:g}{room}{unit}"

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        said = {"name": self.name, "got": self.got, "unit": self.unit, "state": self.state.value, "note": self.note}
        if self.wanted is not None:
            said |= {"wanted": self.wanted, "tolerance": self.tolerance, "bound": self.bound}
        return said


class NotJudged(Exception):  # noqa: N818 - it is no error
    """A check that this machine does not allow; the text says why."""


@dataclass(frozen=True)
class Outcome:
    """What one check found; `why` is set where it could not judge, and `error` where it failed on the way."""

    check: str
    subject: str
    figures: Sequence[Figure] = field(default_factory=tuple)
    why: str = ""
    error: str = ""
    took_s: float = 0.0

    @property
    def state(self) -> State:
        """The state that counts most among those of its figures."""
        if self.error:
            return State.OUTSIDE
        if self.why:
            return State.NOT_JUDGED
        return max((figure.state for figure in self.figures), key=ORDER.index, default=State.NOT_JUDGED)

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "check": self.check,
            "subject": self.subject,
            "state": self.state.value,
            "why": self.why,
            "error": self.error,
            "took_s": round(self.took_s, 1),
            "figures": [figure.document() for figure in self.figures],
        }
