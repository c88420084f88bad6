"""Records of repairs, one file a run: what was ordered, what was done in which order, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from appliance.site.inventory import STATE
from common import files
from common.errors import NotFoundError
from common.repairs import RunState

FOLDER = Path(STATE) / "repairs"
KEPT = 200
"""So many records are kept."""


def moment() -> str:
    """Return this moment as records have it."""
    return f"{datetime.now(UTC).isoformat(timespec='milliseconds')}"


@dataclass
class Step:
    """A look at a node, or a rung and the look after it. `tasks` are Ansible's, each with what came of it."""

    node: str
    at: str
    rung: str = ""
    ok: bool = False
    evidence: str = ""
    seconds: float = 0.0
    tasks: list[str] = field(default_factory=list)


@dataclass
class Record:
    """A run. `sick` are the nodes that had the symptom, `tried` those on which rungs were climbed, `tried_at` when each
    had its turn.

    `reason` is for one that did not end well.
    """

    repair: str
    by: str
    limit: str | None = None
    dry_run: bool = False
    agreed: bool = False
    id: str = field(default_factory=lambda: str(uuid4()))
    state: RunState = RunState.ORDERED
    reason: str = ""
    ordered_at: str = field(default_factory=moment)
    finished_at: str = ""
    tried: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    log: str = ""
    tried_at: dict[str, str] = field(default_factory=dict)
    sick: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return a record from its plain data; what a later release has beside it is passed over."""
        steps = [Step(**_known(Step, step) | {"tasks": [*step.get("tasks", [])]}) for step in plain["steps"]]
        ended = plain["finished_at"] or ""
        return cls(**{**_known(cls, plain), "steps": steps, "state": RunState(plain["state"]), "finished_at": ended})

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class Records:
    """The records in a folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Go by the folder, which is made by the first record."""
        self.folder = folder

    def keep(self, record: Record) -> None:
        """Write a record, and forget the oldest."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(record.id)
        files.write(path, json.dumps(record.plain(), indent=1) + "\n", 0o600)
        if record.state is RunState.ORDERED:
            # by a clock that was put back this one may be the oldest
            others = sorted(set(self.folder.glob("*.json")) - {path}, key=lambda other: other.stat().st_mtime)
            for old in others[: max(len(others) - KEPT + 1, 0)]:
                old.unlink(missing_ok=True)

    def get(self, identity: str) -> Record:
        """Return a record by its id or the beginning of it; raises NotFoundError, also for one that is damaged."""
        found = sorted(self.folder.glob(f"{identity}*.json")) if identity.replace("-", "").isalnum() else []
        if len(found) != 1:
            raise NotFoundError(
                f"there is no run {identity}", where=str(self.folder), hint="see `penstock repair history`"
            )
        if record := _read(found[0]):
            return record
        raise NotFoundError("the record is damaged", where=str(found[0]), hint="remove it, and run the repair again")

    def all(self) -> list[Record]:
        """Return all that can be read, the latest first."""
        found = [record for path in self.folder.glob("*.json") if (record := _read(path))]
        return sorted(found, key=lambda record: record.ordered_at, reverse=True)

    def damaged(self) -> list[Path]:
        """Return the records that cannot be read."""
        return [path for path in sorted(self.folder.glob("*.json")) if not _read(path)]

    def tries(self, repair: str, node: str) -> list[datetime]:
        """Return when a repair was tried on a node."""
        return [
            datetime.fromisoformat(record.tried_at.get(node, record.ordered_at)).astimezone(UTC)
            for record in self.all()
            if record.repair == repair and node in record.tried
        ]

    def _path(self, identity: str) -> Path:
        return self.folder / f"{identity}.json"


def _read(path: Path) -> Record | None:
    """Return a record; None for one that is damaged, as a power cut leaves it."""
    try:
        record = Record.of(json.loads(path.read_text(encoding="utf-8")))
        for at in (record.ordered_at, *record.tried_at.values()):
            datetime.fromisoformat(at)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return record


def _known(kind: type[Record] | type[Step], plain: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in plain.items() if name in names}
