"""The scheduler's cycles, for a look afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption
from appliance.cli.queue import print_queue
from common import files

app = group("The scheduler's decisions (administrators, auditors).")


@app.command("queue")
def queue(form: FormatOption = Format.TABLE) -> None:
    """Show what waits on the whole site, in the order in which it was served last, and why."""
    output.show(config.load().client.scheduler.queue(), form, print_queue)


@app.command("save")
def save(file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to keep it.")]) -> None:
    """Keep the last cycle in a file: what the scheduler saw and what it decided, to be decided again."""
    content = b"".join(config.load().client.scheduler.cycle())
    files.write(file, content, 0o600)
    print(f"Saved the last cycle in {file}.")
