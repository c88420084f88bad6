"""The site file of the example."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).parents[4] / "inventory/example/site.yml"
