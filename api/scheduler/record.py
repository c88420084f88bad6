"""A cycle as a JSON document: the snapshot and what was decided on it, to look at and to decide again elsewhere."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from api.scheduler.snapshot import Decision, Placement, Reclaim, Snapshot, Wait
from common.errors import InputError, Problem

FORMAT = 1
"""Raised when a document of an older version would be read wrongly."""


@dataclass(frozen=True)
class _Decision:
    """A decision with plain mappings, which JSON knows how to write."""

    placements: dict[str, tuple[Placement, ...]]
    reclaims: tuple[Reclaim, ...]
    waits: dict[str, Wait]
    log: tuple[str, ...]
    kept: dict[str, tuple[Placement, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """A snapshot and its decision."""

    format: int
    snapshot: Snapshot
    decision: _Decision


_SAVED = TypeAdapter(Saved)


def save(snapshot: Snapshot, decision: Decision) -> str:
    """Return the document; the same cycle always gives the same text."""
    waits, kept = dict(decision.waits), dict(decision.kept)
    plain = _Decision(dict(decision.placements), decision.reclaims, waits, decision.log, kept)
    document: dict[str, Any] = _SAVED.dump_python(Saved(FORMAT, snapshot, plain), mode="json")
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def load(text: str, where: str = "") -> tuple[Snapshot, Decision]:
    """Return what a document says; raises InputError naming `where` and the field if it is not one of ours."""
    try:
        saved = _SAVED.validate_json(text)
    except ValidationError as error:
        problems = [
            Problem(f"{where}: {'.'.join(str(part) for part in each['loc'])}", each["msg"], "name a saved cycle")
            for each in error.errors()[:5]
        ]
        raise InputError.of(problems) from None
    if saved.format != FORMAT:
        hint = "replay it with the version that saved it"
        raise InputError(f"the document has format {saved.format}, not {FORMAT}", where=where, hint=hint)
    decided = saved.decision
    return saved.snapshot, Decision(decided.placements, decided.reclaims, decided.waits, decided.log, decided.kept)


def differences(saved: Decision, again: Decision) -> list[str]:
    """Return in words where two decisions on one snapshot differ; empty where they are equal."""
    found: list[str] = []
    for id_ in sorted({*saved.placements, *saved.waits, *again.placements, *again.waits}):
        before, after = _outcome(saved, id_), _outcome(again, id_)
        if before != after:
            found.append(f"{id_}: {before}; now {after}")
    taken, retaken = ({(each.victim, each.beneficiary) for each in each_of.reclaims} for each_of in (saved, again))
    found += [f"{victim}: taken back for {other}; now not" for victim, other in sorted(taken - retaken)]
    found += [f"{victim}: not taken back; now for {other}" for victim, other in sorted(retaken - taken)]
    if not found and saved != again:
        found.append("the log reads differently")
    return found


def _outcome(decision: Decision, id_: str) -> str:
    if id_ in decision.placements:
        return "placed on " + " ".join(
            f"{place.node}[{','.join(f'{share.index}:{share.milli}' for share in place.shares)}]"
            for place in decision.placements[id_]
        )
    wait = decision.waits.get(id_)
    return f"waits at {wait.position}, {wait.cause}: {wait.reason}" if wait else "unknown"
