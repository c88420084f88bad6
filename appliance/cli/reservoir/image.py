"""Commands for images of the site's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.reservoir.common import AsJson, Root, progress_bars, show
from reservoir.settings import DEFAULT_ROOT, load


def build_command(
    recipe: Annotated[Path, typer.Argument(help="The file of the recipe.", metavar="RECIPE")],
    root: Root = DEFAULT_ROOT,
    as_json: AsJson = False,
) -> None:
    """Build an image from the packages that the site serves, and take it into the site's store."""
    from reservoir.download.cache import Cache
    from reservoir.serving import images as site

    settings = load()
    with progress_bars() as progress:
        made = site.build(recipe, root, Cache(settings.cache), settings.timestamp, progress)
    said = "was built; `penstock reservoir publish` serves it" if made.changed else "was built before"
    show({"bundle": made.identity, "changed": made.changed}, as_json, f"{made.identity} {said}")
