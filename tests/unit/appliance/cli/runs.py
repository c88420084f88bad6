"""Commands that a test runs in this process, on the site of the example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

EXAMPLE = Path(__file__).parents[4] / "inventory/example/site.yml"


def run(app: Any, *words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])
