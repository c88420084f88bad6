"""Options, progress and output that the commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from common.errors import NotFoundError
from common.progress import Progress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ManifestPath = Annotated[Path, typer.Argument(help="The manifest.", metavar="MANIFEST")]
LockPath = Annotated[
    Path | None,
    typer.Option("--lock", help="The lock; default: beside the manifest, reservoir.lock or NAME.lock of NAME.yml."),
]
BundlePath = Annotated[Path, typer.Argument(help="The folder of a bundle.", metavar="BUNDLE")]
BundlePaths = Annotated[list[Path], typer.Argument(help="The folder of a bundle, or of media.", metavar="BUNDLE")]
Root = Annotated[Path, typer.Option("--root", help="Where the site keeps what was imported.")]
Key = Annotated[
    Path | None, typer.Option("--key", help="The maker's public key, obtained by another way than the bundle.")
]
TrustFirst = Annotated[
    bool, typer.Option("--trust-first", help="Where no key is trusted yet: trust the one that travels with the bundle.")
]
ReplaceKey = Annotated[
    bool, typer.Option("--replace-key", help="Trust the key given with --key instead of the one that is trusted now.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def public_key(path: Path | None) -> Ed25519PublicKey | None:
    """Return the public key in a file, where one was given."""
    from reservoir.signing import ed25519

    if path is None:
        return None
    try:
        return ed25519.read_public(path.read_bytes(), str(path))
    except OSError as error:
        raise NotFoundError(
            f"cannot read the key: {error.strerror}", where=str(path), hint="give the maker's penstock.pub"
        ) from error


def lock_path(manifest: Path, lock: Path | None) -> Path:
    """Return where the lock of a manifest lies: manifests of any other name than the product's have locks of theirs."""
    return lock or manifest.with_name("reservoir.lock" if manifest.stem == "manifest" else f"{manifest.stem}.lock")


def show(result: dict[str, Any], as_json: bool, text: str) -> None:
    print(json.dumps(result) if as_json else text, flush=True)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show progress on standard error: bars on a terminal, one line a step elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = ""

        def say(step: str, done: int = 0, total: int = 0) -> None:  # noqa: ARG001
            nonlocal last
            if step != last:
                last = step
                print(f"{step}" + (f" ({total / 1e6:.0f} MB)" if total else ""), file=sys.stderr, flush=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def advance(step: str, done: int = 0, total: int = 0) -> None:
            if step not in tasks:
                for finished in tasks.values():
                    bars.update(finished, total=1, completed=1)
                tasks[step] = bars.add_task(step, total=total or None)
            if total:
                bars.update(tasks[step], completed=done, total=total)

        yield advance
