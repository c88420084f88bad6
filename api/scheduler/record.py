"""Records of cycles as JSON documents: a snapshot and what was decided on it, to be decided again elsewhere."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from api.scheduler.snapshot import Decision, PendingReason, Placement, Reclaim, Snapshot
from common.errors import InputError, Problem

FORMAT = 3
"""Raised when a document of an older version would be read wrongly."""

Read = TypeVar("Read")


@dataclass(frozen=True)
class _Decision:
    """A decision with plain mappings, which JSON knows how to write."""

    placements: dict[str, tuple[Placement, ...]]
    reclaims: tuple[Reclaim, ...]
    pending_reasons: dict[str, PendingReason]
    log: tuple[str, ...]
    grown: dict[str, dict[int, Placement]] = field(default_factory=dict)
    reach: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reservations: dict[str, tuple[Placement, ...]] = field(default_factory=dict)
    nominated: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    not_grown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Head:
    """What says whether the rest can be read."""

    format: int


@dataclass(frozen=True)
class Saved:
    """A snapshot and its decision."""

    format: int
    snapshot: Snapshot
    decision: _Decision


_HEAD = TypeAdapter(_Head)
_SAVED = TypeAdapter(Saved)


def save(snapshot: Snapshot, decision: Decision) -> str:
    """Return the document; the same cycle always gives the same text."""
    plain = _Decision(
        dict(decision.placements),
        decision.reclaims,
        dict(decision.pending_reasons),
        decision.log,
        {id_: dict(places) for id_, places in decision.grown.items()},
        dict(decision.reach),
        dict(decision.reservations),
        decision.nominated,
        decision.left_out,
        dict(decision.not_grown),
    )
    document: dict[str, Any] = _SAVED.dump_python(Saved(FORMAT, snapshot, plain), mode="json")
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def load(text: str, where: str = "") -> tuple[Snapshot, Decision]:
    """Return what a document says; raises InputError naming `where` and the field if it is not one of ours."""
    found = _read(_HEAD, text, where).format
    if found != FORMAT:
        hint = "replay it with the version that saved it"
        raise InputError(f"the document has format {found}, not {FORMAT}", where=where, hint=hint)
    saved = _read(_SAVED, text, where)
    plain = saved.decision
    return saved.snapshot, Decision(
        plain.placements,
        plain.reclaims,
        plain.pending_reasons,
        plain.log,
        plain.grown,
        plain.reach,
        plain.reservations,
        plain.nominated,
        plain.left_out,
        plain.not_grown,
    )


def differences(saved: Decision, again: Decision) -> list[str]:
    """Return in words where two decisions on one snapshot differ; empty where they are equal."""
    found: list[str] = []
    for id_ in sorted({*saved.placements, *saved.pending_reasons, *again.placements, *again.pending_reasons}):
        before, after = _outcome(saved, id_), _outcome(again, id_)
        if before != after:
            found.append(f"{id_}: {before}; now {after}")
    then, now = ({(each.victim, each.beneficiary) for each in each_of.reclaims} for each_of in (saved, again))
    found += [f"{victim}: reclaimed for {other}; now not" for victim, other in sorted(then - now)]
    found += [f"{victim}: not reclaimed; now for {other}" for victim, other in sorted(now - then)]
    if not found and saved != again:
        found.append("the log reads differently")
    return found


def _outcome(decision: Decision, id_: str) -> str:
    if id_ in decision.placements:
        return "placed on " + " ".join(
            f"{place.node}[{','.join(f'{share.index}:{share.milli}' for share in place.shares)}]"
            for place in decision.placements[id_]
        )
    pending = decision.pending_reasons.get(id_)
    return f"waits at {pending.position}, {pending.cause}: {pending.reason}" if pending else "unknown"


def _read(kind: TypeAdapter[Read], text: str, where: str) -> Read:
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        problems = [
            Problem(f"{where}: {'.'.join(str(part) for part in each['loc'])}", each["msg"], "name a saved cycle")
            for each in error.errors()[:5]
        ]
        raise InputError.of(problems) from None
