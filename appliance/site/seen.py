"""Evidence of one node as judges read it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from common.checks import Check, CheckState

Evidence = Mapping[str, Any]

TOO_LATE = "did not answer within"
BUSY = "the machine that was asked is overloaded or hangs: look at its `uptime`, then verify again"


class NotGatheredError(LookupError):
    """A part of a node's evidence is not there; its text says why."""


class Seen(Mapping[str, Any]):
    """What a node said. Who reads a part that it could not look at gets a NotGatheredError."""

    def __init__(self, evidence: Evidence, reason: str = "") -> None:
        """Take the evidence; `reason` is why parts are missing that say nothing themselves."""
        self._given = evidence
        self._lost: Mapping[str, str] = evidence.get("lost", {})
        self._reason = reason or "the node did not say"

    def __getitem__(self, part: str) -> Any:
        """Return a part; raises NotGatheredError."""
        if part not in self._given:
            raise NotGatheredError(self._lost.get(part, self._reason))
        return self._given[part]

    def __iter__(self) -> Iterator[str]:
        """Return the parts that are there."""
        return iter(self._given)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._given)


def guarded(identity: str, name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks; what cannot be judged for lack of evidence is one unknown check, with the reason."""
    try:
        yield from checks
    except NotGatheredError as missing:
        hint = BUSY if TOO_LATE in str(missing) else ""
        yield Check(identity, name, CheckState.UNKNOWN, str(missing), hint)
