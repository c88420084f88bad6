"""Migrations of the database by a deploy: whether one is to come, which takes a backup before."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STEP = re.compile(r"api/migrations/versions/(\d{4})_\w+\.py")


def newest_step(wheel: Path) -> str:
    """Return the newest step of the schema that the API in a wheel has."""
    with zipfile.ZipFile(wheel) as packed:
        return max((found[1] for name in packed.namelist() if (found := STEP.fullmatch(name))), default="")


def migrates(step: str, deploys: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a deploy brings the database to another step than the last one that succeeded.

    `deploys` are records, the latest first. Those of releases that did not note the step count as another one.
    """
    last = next((record for record in deploys if record["ok"]), None)
    return last is not None and last.get("schema") != step
