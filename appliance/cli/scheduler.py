"""Cycles of the scheduler, kept for a look afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli import config
from appliance.cli.options import group
from common import files

app = group("The scheduler's decisions (administrators, auditors).")


@app.command("save")
def save(file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to keep it.")]) -> None:
    """Keep the last cycle in a file: what the scheduler saw and what it decided, to be decided again."""
    content = b"".join(config.load().client.scheduler.cycle())
    files.write(file, content, 0o600)
    print(f"Saved the last cycle in {file}.")
