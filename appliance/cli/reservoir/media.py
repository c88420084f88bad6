"""Commands for what travels between an integrator and a site: receipts one way, media the other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.reservoir.common import AsJson, BundlePath, Root, progress_bars, show
from reservoir.settings import DEFAULT_ROOT, load


def receipt_command(
    root: Root = DEFAULT_ROOT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; default: standard output.")] = None,
) -> None:
    """Write a signed receipt of what the site holds, for `build --since`; shows the site's fingerprint."""
    from common import files
    from reservoir.intake import receipt

    with progress_bars() as progress:
        written = receipt.write(root, load().timestamp, progress)
    if output is None:
        sys.stdout.write(written.content.decode())
    else:
        files.write(output, written.content)
    for path in written.damaged:
        print(f"warning: {path} is damaged and not in the receipt; a new delta brings it again", file=sys.stderr)
    found = written.receipt
    print(
        f"receipt {found.serial}: {len(found.bundles)} bundles, {len(found.blobs)} blobs; site {found.fingerprint}",
        file=sys.stderr,
    )


def split_command(
    bundle: BundlePath,
    size: Annotated[str, typer.Option("--size", help="Of one disc: dvd, cd, bd, or such as 4.7GB, 650MB, 8GiB.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder that gets the folder of the media.")],
    as_json: AsJson = False,
) -> None:
    """Cut a bundle, or a delta, into media that fit on discs."""
    from reservoir.media import split
    from reservoir.signing import ed25519

    key = ed25519.read_key(load().signing_key)
    with progress_bars() as progress:
        media = split.split(bundle, split.capacity(size), key, output, progress)
    show(
        {"media": [str(path) for path in media]},
        as_json,
        "\n".join(str(path) for path in media),
    )
